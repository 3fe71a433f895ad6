"""An RWKVHardwareStack as a frozen value: one exact, tested combination of hardware and software.

Only reading lives here; whether a node or a pod matches a stack is decided in `decide/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rwkv_operator.api.parsing import Fields

VENDORS: Final = ("cpu", "nvidia", "ascend")


@dataclass(frozen=True)
class Supports:
    """What the stack can run; an empty tuple restricts nothing."""

    devices_per_replica: tuple[int, ...] = ()
    dtypes: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """Whether the combination was run, and by what report that is known."""

    status: str = "Unvalidated"
    report: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Stack:
    """One RWKVHardwareStack; `runtime_requirements` are kept as they are written in it."""

    name: str
    uid: str
    generation: int
    vendor: str
    engine_image: str
    resource_name: str | None = None
    runtime_requirements: Mapping[str, Any] = field(default_factory=dict)
    supports: Supports = Supports()
    evidence: Evidence = Evidence()
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
        runtime_requirements=spec.raw_map("runtimeRequirements"),
        supports=_parse_supports(spec.child("supports")),
        evidence=_parse_evidence(spec.child("evidence")),
        resources=spec.raw_map("resources"),
        node_selector=spec.text_map("nodeSelector"),
        tolerations=spec.raw_list("tolerations"),
        runtime_class_name=spec.optional_text("runtimeClassName"),
    )


def _parse_supports(supports: Fields) -> Supports:
    return Supports(
        devices_per_replica=supports.integers("devicesPerReplica"),
        dtypes=supports.texts("dtypes"),
        formats=supports.texts("formats"),
    )


def _parse_evidence(evidence: Fields) -> Evidence:
    return Evidence(
        status=evidence.choice("status", ("Validated", "Unvalidated"), "Unvalidated"),
        report=evidence.optional_text("report"),
        sha256=evidence.optional_text("sha256"),
    )
