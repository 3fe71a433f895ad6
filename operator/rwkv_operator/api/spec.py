"""An RWKVDeployment as a frozen value: the fields of the CRD in snake case, defaults filled in.

The schema's defaults and these are the same; a test compares them. Nothing here knows about other
objects of the cluster: what can only be told by looking at one is decided in `decide/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rwkv_operator import names
from rwkv_operator.api.model import Model, parse_model
from rwkv_operator.api.parsing import Fields
from rwkv_operator.api.state import State, parse_state
from rwkv_operator.errors import InvalidSpec

AUTH_MODES: Final = ("APIKeys", "Open")
QUANTIZATIONS: Final = ("None", "Int8", "Int4", "W8", "W4")
ON_UNKNOWN: Final = ("Wait", "Refuse", "Proceed")
SERVICE_TYPES: Final = ("ClusterIP", "NodePort", "LoadBalancer")
MAX_ENGINES: Final = 64


@dataclass(frozen=True)
class Hardware:
    """The stack to run on, and what overrides it for this deployment.

    Attributes:
        accept_unvalidated: run although the stack has no evidence.
        on_unknown: what to do where nodes lack the labels that would tell whether they fit.
    """

    stack: str
    devices_per_replica: int = 1
    accept_unvalidated: bool = False
    on_unknown: str = "Wait"
    resource_name: str | None = None
    runtime_class_name: str | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    resources: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class PodTemplate:
    """Additions to the engine pods that leave their selector alone; `env` is the download's."""

    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    image_pull_secrets: tuple[str, ...] = ()
    priority_class_name: str | None = None
    affinity: Mapping[str, Any] = field(default_factory=dict)
    topology_spread_constraints: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Engine:
    """How one engine runs."""

    max_num_seqs: int = 16
    max_num_batched_tokens: int = 2048
    quantization: str = "None"
    shutdown_timeout_seconds: int = 30
    extra_args: tuple[str, ...] = ()
    pod_template: PodTemplate = PodTemplate()


@dataclass(frozen=True)
class Timeouts:
    """How long the router waits: for a whole request, for a silent engine, for a free slot."""

    request_seconds: int = 10
    response_seconds: int = 300
    queue_seconds: int = 30


@dataclass(frozen=True)
class Routing:
    """The routers."""

    replicas: int = 2
    max_engine_replicas: int = 16
    max_body_bytes: int = 2**20
    max_request_bytes: int = 32 * 2**20
    max_state_bytes: int = 128 * 2**20
    timeouts: Timeouts = Timeouts()
    allow_from: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Auth:
    """Who may call. Without a Secret of the user's, one with a single key is made."""

    mode: str = "APIKeys"
    api_keys_secret: str | None = None

    @property
    def makes_key(self) -> bool:
        """Whether the operator makes the Secret with the API key."""
        return self.mode == "APIKeys" and self.api_keys_secret is None


@dataclass(frozen=True)
class Service:
    """The Service that clients talk to."""

    type: str = "ClusterIP"
    port: int = 80
    annotations: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Spec:
    """Everything that the user asks for."""

    model: Model
    hardware: Hardware
    replicas: int = 1
    engine: Engine = Engine()
    state: State = field(default_factory=State)
    routing: Routing = Routing()
    auth: Auth = Auth()
    service: Service = Service()


@dataclass(frozen=True)
class Deployment:
    """One RWKVDeployment."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: Spec


def parse_deployment(obj: Mapping[str, Any]) -> Deployment:
    """Read an RWKVDeployment.

    Raises:
        InvalidSpec: a field has a value that can't be served.
    """
    top = Fields.of(obj, "")
    metadata = top.child("metadata")
    name = metadata.text("name")
    if not names.is_deployment_name(name):
        raise InvalidSpec(
            "metadata.name",
            name,
            "at most 40 of a-z, 0-9 and -, a letter first, not ending in "
            + ", ".join(names.RESERVED_SUFFIXES),
        )
    return Deployment(
        namespace=metadata.text("namespace"),
        name=name,
        uid=metadata.text("uid"),
        generation=metadata.integer("generation", 1, 0, 2**63 - 1),
        spec=parse_spec(top.child("spec"), name),
    )


def parse_spec(spec: Fields, name: str) -> Spec:
    """Read the spec of the deployment with that name."""
    routing = _parse_routing(spec.child("routing"))
    replicas = spec.integer("replicas", 1, 0, MAX_ENGINES)
    if replicas > routing.max_engine_replicas:
        raise InvalidSpec(
            "spec.replicas",
            replicas,
            f"at most routing.maxEngineReplicas ({routing.max_engine_replicas})",
        )
    return Spec(
        model=parse_model(spec.child("model"), name),
        hardware=_parse_hardware(spec.child("hardware")),
        replicas=replicas,
        engine=_parse_engine(spec.child("engine")),
        state=parse_state(spec.child("state")),
        routing=routing,
        auth=_parse_auth(spec.child("auth")),
        service=_parse_service(spec.child("service")),
    )


def _parse_hardware(hardware: Fields) -> Hardware:
    return Hardware(
        stack=hardware.text("stack"),
        devices_per_replica=hardware.integer("devicesPerReplica", 1, 1, 64),
        accept_unvalidated=hardware.flag("acceptUnvalidated"),
        on_unknown=hardware.choice("onUnknown", ON_UNKNOWN, "Wait"),
        resource_name=hardware.optional_text("resourceName"),
        runtime_class_name=hardware.optional_text("runtimeClassName"),
        node_selector=hardware.text_map("nodeSelector"),
        tolerations=hardware.raw_list("tolerations"),
        resources=hardware.raw_map("resources"),
    )


def _parse_engine(engine: Fields) -> Engine:
    template = engine.child("podTemplate")
    return Engine(
        max_num_seqs=engine.integer("maxNumSeqs", 16, 1, 4096),
        max_num_batched_tokens=engine.integer("maxNumBatchedTokens", 2048, 1, 2**20),
        quantization=engine.choice("quantization", QUANTIZATIONS, "None"),
        shutdown_timeout_seconds=engine.seconds("shutdownTimeout", "30s"),
        extra_args=engine.texts("extraArgs"),
        pod_template=PodTemplate(
            env={item.text("name"): item.text("value") for item in template.items("env")},
            labels=template.text_map("labels"),
            annotations=template.text_map("annotations"),
            image_pull_secrets=tuple(
                secret.text("name") for secret in template.items("imagePullSecrets")
            ),
            priority_class_name=template.optional_text("priorityClassName"),
            affinity=template.raw_map("affinity"),
            topology_spread_constraints=template.raw_list("topologySpreadConstraints"),
        ),
    )


def _parse_routing(routing: Fields) -> Routing:
    timeouts = routing.child("timeouts")
    return Routing(
        replicas=routing.integer("replicas", 2, 1, 16),
        max_engine_replicas=routing.integer("maxEngineReplicas", 16, 1, MAX_ENGINES),
        max_body_bytes=routing.size("maxBodyBytes", "1Mi"),
        max_request_bytes=routing.size("maxRequestBytes", "32Mi"),
        max_state_bytes=routing.size("maxStateBytes", "128Mi"),
        timeouts=Timeouts(
            request_seconds=timeouts.seconds("request", "10s"),
            response_seconds=timeouts.seconds("response", "5m"),
            queue_seconds=timeouts.seconds("queue", "30s"),
        ),
        allow_from=routing.raw_list("allowFrom"),
    )


def _parse_auth(auth: Fields) -> Auth:
    mode = auth.choice("mode", AUTH_MODES, "APIKeys")
    secret = auth.child("apiKeysSecretRef").text("name") if auth.has("apiKeysSecretRef") else None
    if mode == "Open" and secret is not None:
        raise InvalidSpec(auth.at("apiKeysSecretRef"), secret, "no Secret with mode Open")
    return Auth(mode, secret)


def _parse_service(service: Fields) -> Service:
    return Service(
        type=service.choice("type", SERVICE_TYPES, "ClusterIP"),
        port=service.integer("port", 80, 1, 65535),
        annotations=service.text_map("annotations"),
    )
