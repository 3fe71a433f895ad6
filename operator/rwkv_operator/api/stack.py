"""An RWKVHardwareStack as a frozen value: one exact, tested combination of hardware and software.

Only reading lives here; whether a node or a pod matches a stack is decided in `decide/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rwkv_operator.api.parsing import Fields
from rwkv_operator.api.version import parse_version
from rwkv_operator.errors import InvalidSpec

VENDORS: Final = ("cpu", "nvidia", "ascend")
_TESTS: Final = ("in", "atLeast", "exists")


@dataclass(frozen=True)
class NodeRequirement:
    """What one label of a node must say, or several labels joined by dots to one version.

    Attributes:
        allowed: the values that it may have; empty where the version or the presence counts.
        at_least: the lowest version; None where the values or the presence count.
    """

    labels: tuple[str, ...]
    allowed: tuple[str, ...] = ()
    at_least: str | None = None

    def name(self) -> str:
        """The label or labels, for messages."""
        return ".".join((self.labels[0], *(label.rsplit(".", 1)[-1] for label in self.labels[1:])))

    def wanted(self) -> str:
        """What would be accepted, for messages."""
        if self.at_least is not None:
            return f"at least {self.at_least}"
        return " or ".join(self.allowed) or "any value"


@dataclass(frozen=True)
class Supports:
    """What the stack can run; an empty tuple restricts nothing."""

    devices_per_replica: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ()
    quantization: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """Whether the combination was run, and by what report that is known."""

    status: str = "Unvalidated"
    report: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Devices:
    """How the engine's container gets at its devices, besides asking for the resource.

    Attributes:
        host_driver: mount the host's Ascend driver, where no Ascend runtime does it.
        groups: groups on the host that own the device files.
        shared_memory: size of /dev/shm.
    """

    host_driver: bool = False
    groups: tuple[int, ...] = ()
    shared_memory: str = "256Mi"


@dataclass(frozen=True)
class Stack:
    """One RWKVHardwareStack; `runtime_requirements` are kept as they are written in it."""

    name: str
    uid: str
    generation: int
    vendor: str
    engine_image: str
    resource_name: str | None = None
    node_requirements: tuple[NodeRequirement, ...] = ()
    runtime_requirements: Mapping[str, Any] = field(default_factory=dict)
    supports: Supports = Supports()
    evidence: Evidence = Evidence()
    devices: Devices = Devices()
    resources: Mapping[str, Any] = field(default_factory=dict)
    node_selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()
    runtime_class_name: str | None = None

    @property
    def packages(self) -> Mapping[str, str]:
        """Python packages and the exact versions that the engine image must hold."""
        return dict(self.runtime_requirements.get("packages") or {})


def parse_stack(obj: Mapping[str, Any]) -> Stack:
    """Read an RWKVHardwareStack.

    Raises:
        InvalidSpec: a field has a value that can't be used.
    """
    top = Fields.of(obj, "")
    metadata = top.child("metadata")
    spec = top.child("spec")
    return Stack(
        name=metadata.text("name"),
        uid=metadata.text("uid"),
        generation=metadata.integer("generation", 1, 0, 2**63 - 1),
        vendor=spec.choice("vendor", VENDORS, ""),
        engine_image=spec.text("engineImage"),
        resource_name=spec.optional_text("resourceName"),
        node_requirements=tuple(
            _parse_node_requirement(item) for item in spec.items("nodeRequirements")
        ),
        runtime_requirements=spec.raw_map("runtimeRequirements"),
        supports=_parse_supports(spec.child("supports")),
        evidence=_parse_evidence(spec.child("evidence")),
        devices=_parse_devices(spec.child("devices")),
        resources=spec.raw_map("resources"),
        node_selector=spec.text_map("nodeSelector"),
        tolerations=spec.raw_list("tolerations"),
        runtime_class_name=spec.optional_text("runtimeClassName"),
    )


def _parse_node_requirement(item: Fields) -> NodeRequirement:
    one = item.only_key(("label", "labels"))
    labels = (item.text("label"),) if one == "label" else item.texts("labels")
    test = item.only_key(_TESTS)
    at_least = item.text("atLeast") if test == "atLeast" else None
    if at_least is not None and parse_version(at_least) is None:
        raise InvalidSpec(item.at("atLeast"), at_least, "a version of numbers and dots, as 580.65")
    return NodeRequirement(
        labels=labels,
        allowed=item.texts("in") if test == "in" else (),
        at_least=at_least,
    )


def _parse_supports(supports: Fields) -> Supports:
    return Supports(
        devices_per_replica=supports.integers("devicesPerReplica"),
        dtypes=supports.texts("dtypes"),
        quantization=supports.texts("quantization"),
        formats=supports.texts("formats"),
    )


def _parse_evidence(evidence: Fields) -> Evidence:
    return Evidence(
        status=evidence.choice("status", ("Validated", "Unvalidated"), "Unvalidated"),
        report=evidence.optional_text("report"),
        sha256=evidence.optional_text("sha256"),
    )


def _parse_devices(devices: Fields) -> Devices:
    return Devices(
        host_driver=devices.flag("hostDriver"),
        groups=devices.integers("groups"),
        shared_memory=devices.quantity("sharedMemory", "256Mi"),
    )
