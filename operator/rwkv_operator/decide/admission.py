"""Whether a deployment may have pods: the checks that run before any exists.

The API server has refused what a schema can tell. Here is what needs a look at the stack and the
nodes; what a pod's preflight finds later is in `refusal.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from rwkv_operator.api import conditions
from rwkv_operator.api.conditions import Condition
from rwkv_operator.api.node import Node
from rwkv_operator.api.observed import Observed
from rwkv_operator.api.spec import Deployment
from rwkv_operator.api.stack import Stack
from rwkv_operator.decide import nodes
from rwkv_operator.decide.engines import current_engines
from rwkv_operator.errors import InvalidSpec

Check = Callable[[Deployment, Stack], str | None]

_WITHOUT_VERDICT: Final = ("Preflight", "Failed")
"""Phases in which an engine may not have passed its preflight."""


@dataclass(frozen=True)
class Admission:
    """The verdict before any pod exists.

    Attributes:
        condition: Admitted, as far as it can be told without a pod.
        allowed: whether pods may be made.
        candidates: nodes that the pods may land on; where they change, a refusal is outdated.
    """

    condition: Condition
    allowed: bool = False
    candidates: tuple[Node, ...] = ()


def decide_admission(
    dep: Deployment,
    stack: Stack | InvalidSpec | None,
    cluster_nodes: Iterable[Node],
    known: Iterable[str] = (),
) -> Admission:
    """Gates 1 and 2 in their order.

    Args:
        dep: the deployment.
        stack: the stack that it names; None where there is none of that name, the error where
            it can't be read.
        cluster_nodes: every node of the cluster.
        known: names of the stacks that there are, to choose from.
    """
    name = dep.spec.hardware.stack
    if stack is None:
        choice = ", ".join(sorted(known)) or "none; install the catalogue with the chart"
        return _refuse(
            "UnknownStack",
            f"spec.hardware.stack: found {name}, wanted an RWKVHardwareStack of the cluster: "
            f"{choice}",
        )
    if isinstance(stack, InvalidSpec):
        return _refuse("InvalidStack", f"RWKVHardwareStack {name}: {stack}")
    for reason, check in CHECKS:
        problem = check(dep, stack)
        if problem is not None:
            return _refuse(reason, problem)
    return _decide_nodes(dep, stack, cluster_nodes)


def decide_unreadable(error: InvalidSpec) -> Condition:
    """The Admitted condition of an object whose spec can't be read."""
    return _refuse("InvalidSpec", str(error)).condition


def decide_agreement(dep: Deployment, admitted: Condition, observed: Observed) -> Condition:
    """The Admitted condition once pods exist: a preflight that agrees settles what was unknown."""
    if admitted.status != "Unknown":
        return admitted
    for pod in current_engines(dep, observed):
        report = observed.reports.get(pod.name)
        if pod.ready or (report is not None and report.phase not in _WITHOUT_VERDICT):
            text = f"the preflight of {pod.name} agrees with stack {dep.spec.hardware.stack}"
            return replace(admitted, status="True", reason="Admitted", message=text)
    return admitted


def check_evidence(dep: Deployment, stack: Stack) -> str | None:
    """The combination was run, or the user knows that it wasn't."""
    if stack.evidence.status == "Validated" or dep.spec.hardware.accept_unvalidated:
        return None
    return (
        f"stack {stack.name} was never validated; run `rwkv-server acceptance` on it and have its "
        "evidence recorded, or set spec.hardware.acceptUnvalidated (needs the verb "
        "use-unvalidated on that stack)"
    )


def check_devices(dep: Deployment, stack: Stack) -> str | None:
    """The stack was tested with this many devices per replica."""
    return _unsupported(
        "spec.hardware.devicesPerReplica",
        dep.spec.hardware.devices_per_replica,
        stack.supports.devices_per_replica,
        stack,
    )


def check_partitions(dep: Deployment, stack: Stack) -> str | None:
    """Partitions of a GPU can't speak to each other, so a replica takes one."""
    resource = dep.spec.hardware.resource_name or stack.resource_name or ""
    count = dep.spec.hardware.devices_per_replica
    if count == 1 or not resource.startswith("nvidia.com/mig-"):
        return None
    return f"spec.hardware.devicesPerReplica: found {count}, wanted 1 with {resource}"


def check_dtype(dep: Deployment, stack: Stack) -> str | None:
    """The stack computes in this dtype."""
    dtype = dep.spec.model.dtype
    if dtype == "Auto":
        return None
    return _unsupported("spec.model.dtype", dtype, stack.supports.dtypes, stack)


def check_format(dep: Deployment, stack: Stack) -> str | None:
    """The stack loads this format."""
    wanted = dep.spec.model.format
    if wanted == "Auto":
        return None
    return _unsupported("spec.model.format", wanted, stack.supports.formats, stack)


def check_quantization(dep: Deployment, stack: Stack) -> str | None:
    """The stack has the kernels for weights of this kind; unlike the rest, never by silence."""
    wanted = dep.spec.engine.quantization
    if wanted == "None":
        return None
    supported = stack.supports.quantization or ("None",)
    return _unsupported("spec.engine.quantization", wanted, supported, stack)


CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("UnsupportedCombination", check_devices),
    ("UnsupportedCombination", check_partitions),
    ("UnsupportedCombination", check_dtype),
    ("UnsupportedCombination", check_format),
    ("UnsupportedCombination", check_quantization),
    ("StackNotValidated", check_evidence),
)


def _decide_nodes(dep: Deployment, stack: Stack, cluster_nodes: Iterable[Node]) -> Admission:
    hardware = dep.spec.hardware
    fit = nodes.decide_fit(nodes.build_needs(stack, hardware), cluster_nodes)
    candidates = (*fit.matching, *fit.unknown) if _proceeds(dep) else fit.matching
    if fit.reason is None:
        text = f"stack {stack.name}: {fit.message}"
        return Admission(Condition(conditions.ADMITTED, "True", "Admitted", text), True, candidates)
    if fit.reason != nodes.MISSING:
        return _refuse(fit.reason, f"stack {stack.name}: {fit.message}")
    status, advice = _ON_UNKNOWN[hardware.on_unknown]
    text = f"stack {stack.name}: {fit.message}; {advice}"
    unknown = Condition(conditions.ADMITTED, status, nodes.MISSING, text)
    return Admission(unknown, _proceeds(dep), candidates)


_ON_UNKNOWN: Final[Mapping[str, tuple[conditions.Status, str]]] = {
    "Wait": ("Unknown", "waiting for the labels, see spec.hardware.onUnknown"),
    "Refuse": ("False", "refused, because spec.hardware.onUnknown is Refuse"),
    "Proceed": ("Unknown", "going on until a preflight tells, because onUnknown is Proceed"),
}


def _proceeds(dep: Deployment) -> bool:
    return dep.spec.hardware.on_unknown == "Proceed"


def _unsupported(
    field: str, found: object, supported: tuple[object, ...], stack: Stack
) -> str | None:
    if not supported or found in supported:
        return None
    choice = ", ".join(str(value) for value in supported)
    return f"{field}: found {found}, wanted one that stack {stack.name} supports: {choice}"


def _refuse(reason: str, message: str) -> Admission:
    return Admission(Condition(conditions.ADMITTED, "False", reason, message))
