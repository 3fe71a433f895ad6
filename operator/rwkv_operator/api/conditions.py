"""The eight conditions of an RWKVDeployment: their types, every reason, and how they are written.

A condition is computed from what is observed and never read back; only the time of its last
change is carried over from the stored one. What leads to which reason is decided in `decide/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

Status = Literal["True", "False", "Unknown"]

ADMITTED: Final = "Admitted"
MODEL_LOADED: Final = "ModelLoaded"
STATE_STORE_READY: Final = "StateStoreReady"
ROUTER_READY: Final = "RouterReady"
PROGRESSING: Final = "Progressing"
DEGRADED: Final = "Degraded"
AVAILABLE: Final = "Available"
READY: Final = "Ready"

TYPES: Final = (
    ADMITTED,
    MODEL_LOADED,
    STATE_STORE_READY,
    ROUTER_READY,
    PROGRESSING,
    DEGRADED,
    AVAILABLE,
    READY,
)
"""In the order in which a deployment comes up, which is also the order of the status."""

NOT_ADMITTED: Final = "NotAdmitted"
SCALED_TO_ZERO: Final = "ScaledToZero"
LOADED: Final = "Loaded"
LOADING: Final = "Loading"
DOWNLOADING: Final = "Downloading"
RUNTIME_MISMATCH: Final = "RuntimeMismatch"

REASONS: Final[Mapping[str, Mapping[str, str]]] = {
    ADMITTED: {
        "Admitted": "the spec is valid and its stack can run it",
        "InvalidSpec": "a field has a value that can't be served",
        "UnknownStack": "no RWKVHardwareStack has the name in spec.hardware.stack",
        "InvalidStack": "the RWKVHardwareStack has a value that can't be used",
        "UnsupportedCombination": "the stack can't run what the spec asks for",
        "StackNotValidated": "the stack has no evidence and the spec doesn't accept that",
        "NoMatchingNode": "no node has the labels, devices and taints that the stack asks for",
        "ChipMismatch": "the nodes that come closest have another chip",
        "DriverTooOld": "the nodes that come closest have too old a driver",
        "LabelsMissing": "nodes lack the labels that would tell whether they fit; see onUnknown",
        RUNTIME_MISMATCH: "what an engine found inside its container isn't what the stack wants",
    },
    MODEL_LOADED: {
        LOADED: "every engine has loaded the weights",
        LOADING: "an engine is starting, checking the model or loading the weights",
        DOWNLOADING: "an engine pod downloads the model or waits for one that does",
        "ModelNotFound": "the model's repository, revision, image, volume or a file is missing",
        "ModelInvalid": "a file or tensor of the model isn't what RWKV-7 needs",
        "CredentialsMissing": "the hub or registry wants a token, or another one",
        "DownloadFailed": "the hub or registry doesn't answer as it should; it is retried",
        "DiskFull": "the model doesn't fit on its volume",
        NOT_ADMITTED: "there are no engines before the deployment is admitted",
        SCALED_TO_ZERO: "spec.replicas is 0",
    },
    STATE_STORE_READY: {
        "PerPod": "each engine's volume passed its write-read-delete probe",
        "Shared": "each engine's write-read-delete probe of the shared volume or bucket passed",
        "Ephemeral": "the probe passed; states die with their pod",
        "Probing": "an engine hasn't reported its probe yet",
        "StoreUnreachable": "an engine can't write, read or delete in its store",
        "StoreDenied": "an engine isn't allowed to use its store",
        NOT_ADMITTED: "there are no engines before the deployment is admitted",
        SCALED_TO_ZERO: "spec.replicas is 0",
    },
    ROUTER_READY: {
        "Routing": "every router runs the current config and sees a ready engine",
        "RouterStarting": "no router pod is ready yet",
        "ConfigPending": "a router doesn't run the current config yet",
        "Starting": "a router's agent hasn't brought its config into force yet",
        "HAProxyUnreachable": "a router's agent can't speak to its HAProxy",
        "ConfigRefused": "HAProxy refused the config; the former one stays in use",
        "InvalidAPIKeys": "an entry of the Secret with the API keys can't be used",
        "NoReadyEngine": "the routers see no ready engine",
        "RouterUnreachable": "the operator can't read a router's status",
        NOT_ADMITTED: "there are no routers before the deployment is admitted",
        SCALED_TO_ZERO: "spec.replicas is 0",
    },
    PROGRESSING: {
        "Settled": "everything runs as the spec says",
        "Applying": "the children are being made or changed",
        "RollingOut": "pods of an older template are being replaced",
        "Scaling": "pods are being added or removed",
        "Starting": "new pods are starting",
        NOT_ADMITTED: "nothing is rolled out before the deployment is admitted",
    },
    DEGRADED: {
        "AsSpecified": "nothing is below the spec",
        "FewerReplicas": "fewer engines or routers are ready than asked for",
        "NameTaken": "an object that isn't ours has the name of a child",
        "ApplyRefused": "the API server refused a child",
        "FailedScheduling": "no node takes a pod; the message is the scheduler's",
        "FailedCreate": "Kubernetes refuses to create a pod",
        "FailedMount": "a volume of a pod can't be mounted",
        "CrashLoopBackOff": "a container ends with an error again and again",
        RUNTIME_MISMATCH: "an engine's preflight refused; it found something else than wanted",
        NOT_ADMITTED: "nothing is degraded before the deployment is admitted",
    },
    AVAILABLE: {
        "Serving": "a router and an engine are ready: requests are answered now",
        "NoReadyEngine": "no engine is ready",
        "NoReadyRouter": "no router is ready",
        NOT_ADMITTED: "nothing runs before the deployment is admitted",
        SCALED_TO_ZERO: "spec.replicas is 0",
    },
    READY: {
        "Ready": "the current generation is rolled out and serves",
    },
}
"""What each reason means, by type. Degraded also takes a pod's own reason, such as OOMKilled or
ImagePullBackOff; Ready's reason is that of the condition that keeps it from being True."""


@dataclass(frozen=True)
class Condition:
    """One condition as it is now.

    Attributes:
        waiting: it will change by itself; nobody has to do anything.
    """

    type: str
    status: Status
    reason: str
    message: str
    waiting: bool = False


def merge(
    stored: Iterable[Mapping[str, Any]],
    conditions: Iterable[Condition],
    generation: int,
    now: str,
) -> list[dict[str, Any]]:
    """Conditions for the status; the time is kept where a condition's status didn't change.

    Args:
        stored: the status' conditions as they are.
        conditions: what they should be.
        generation: generation of the spec that they were computed for.
        now: time in Kubernetes' format.
    """
    before = {condition.get("type"): condition for condition in stored}
    return [
        _entry(condition, before.get(condition.type), generation, now) for condition in conditions
    ]


def _entry(
    condition: Condition, before: Mapping[str, Any] | None, generation: int, now: str
) -> dict[str, Any]:
    unchanged = before is not None and before.get("status") == condition.status
    since = before.get("lastTransitionTime") if unchanged and before else None
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "observedGeneration": generation,
        "lastTransitionTime": since or now,
    }
