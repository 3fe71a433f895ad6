"""The current engine pods, and what they tell about the state store.

A pod's own word counts: its termination message when it ended, its report while it runs.
"""

from __future__ import annotations

from typing import Final

from rwkv_operator import names
from rwkv_operator.api import conditions
from rwkv_operator.api.conditions import Condition
from rwkv_operator.api.observed import EngineReport, Observed
from rwkv_operator.api.pods import Pod
from rwkv_operator.api.spec import Deployment
from rwkv_operator.api.state import ClaimStore, EphemeralStore, PerPodStore, S3Store
from rwkv_operator.names import VOLUME_S3

_STORE_ENDS: Final = ("StoreUnreachable", "StoreDenied")


def decide_store_ready(dep: Deployment, observed: Observed) -> Condition:
    """The StateStoreReady condition: did every engine's write-read-delete probe pass?"""
    if dep.spec.replicas == 0:
        return _store("True", conditions.SCALED_TO_ZERO, "spec.replicas is 0, nothing to probe")
    if observed.refusal is not None:
        return _store("Unknown", conditions.NOT_ADMITTED, "there are no engines to probe")
    missing = _missing_claim(dep, observed) or _missing_secret(dep, observed)
    if missing is not None:
        return missing
    pods = current_engines(dep, observed)
    for pod in pods:
        said = pod.failure.said if pod.failure else None
        if said is not None and said.reason in _STORE_ENDS:
            return _store("False", said.reason, f"{pod.name}: {said.message}")
        report = observed.reports.get(pod.name)
        if report and report.store and not report.store.ok:
            return _store("False", report.store.reason, f"{pod.name}: {report.store.message}")
    passed = [pod for pod in pods if _probe_passed(observed.reports.get(pod.name))]
    if len(passed) < dep.spec.replicas:
        text = f"{len(passed)} of {dep.spec.replicas} engines have reported their probe"
        return _store("Unknown", "Probing", text, waiting=True)
    return _store("True", *_store_text(dep))


def _missing_claim(dep: Deployment, observed: Observed) -> Condition | None:
    """The scheduler's word about a shared volume that isn't there."""
    store = dep.spec.state.store
    if not isinstance(store, ClaimStore):
        return None
    told = f'persistentvolumeclaim "{store.claim_name}" not found'
    failures = [pod.failure.message for pod in observed.pods_of("engine") if pod.failure]
    if not any(told in message for message in failures):
        return None
    text = (
        f"spec.state.store.persistentVolumeClaim.claimName: PersistentVolumeClaim "
        f"{store.claim_name} not found in namespace {dep.namespace}; create it"
    )
    return _store("False", "StoreUnreachable", text)


def _missing_secret(dep: Deployment, observed: Observed) -> Condition | None:
    """The kubelet's word about a Secret with credentials that isn't there, or lacks an entry."""
    store = dep.spec.state.store
    if not isinstance(store, S3Store):
        return None
    told = f'volume "{VOLUME_S3}"'
    for event in observed.events:
        if event.reason == "FailedMount" and told in event.message:
            text = (
                f"spec.state.store.s3.credentialsSecretRef: Secret {store.credentials_secret} in "
                f"namespace {dep.namespace} needs the entries accessKeyId and secretAccessKey "
                f"({event.message})"
            )
            return _store("False", "StoreDenied", text)
    return None


def current_engines(dep: Deployment, observed: Observed) -> tuple[Pod, ...]:
    """Engine pods of the newest template whose ordinal is within spec.replicas."""
    wanted = {names.engine_pod(dep.name, ordinal) for ordinal in range(dep.spec.replicas)}
    revision = observed.engines.revision if observed.engines else None
    return tuple(
        pod
        for pod in observed.pods_of("engine")
        if pod.name in wanted and (revision is None or pod.revision == revision)
    )


def _probe_passed(report: EngineReport | None) -> bool:
    return report is not None and report.store is not None and report.store.ok


def _store_text(dep: Deployment) -> tuple[str, str]:
    store = dep.spec.state.store
    if isinstance(store, EphemeralStore):
        return "Ephemeral", (
            f"states live in each engine pod (at most {store.size_limit}); they are lost when the "
            "pod is deleted, evicted, rescheduled or replaced by a rollout"
        )
    if isinstance(store, PerPodStore):
        return "PerPod", (
            f"each engine has a volume of {store.size}; states outlive the pod and are lost with "
            "the volume or with the RWKVDeployment"
        )
    return "Shared", (
        f"all engines share {_shared_place(store)}; states outlive pods, nodes as far as it does, "
        "and the RWKVDeployment"
    )


def _shared_place(store: ClaimStore | S3Store) -> str:
    if isinstance(store, ClaimStore):
        return f"PersistentVolumeClaim {store.claim_name}"
    return f"bucket {store.bucket} at {store.endpoint or f'Amazon S3, {store.region}'}"


def _store(
    status: conditions.Status, reason: str, message: str, waiting: bool = False
) -> Condition:
    return Condition(conditions.STATE_STORE_READY, status, reason, message, waiting)
