"""Whether a node can run a stack, told from its labels and devices before any pod exists.

A label that isn't there is unknown, never wrong: whoever sets it may not have run yet. A device
that isn't there is wrong: no pod could be scheduled.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rwkv_operator.api.node import Node
from rwkv_operator.api.spec import Hardware
from rwkv_operator.api.stack import NodeRequirement, Stack
from rwkv_operator.api.version import parse_version

NO_NODE: Final = "NoMatchingNode"
CHIP: Final = "ChipMismatch"
DRIVER: Final = "DriverTooOld"
MISSING: Final = "LabelsMissing"

_SETTERS: Final = (
    ("nvidia.com/", "NVIDIA's GPU feature discovery"),
    ("node.kubernetes.io/npu.", "Ascend MindCluster"),
    ("huawei.com/", "Ascend MindCluster"),
    ("mind-cluster/", "Ascend MindCluster"),
    ("accelerator", "the admin, as MindCluster asks"),
    ("kubernetes.io/", "the kubelet"),
)
_CHIP_WORDS: Final = ("chip", "gpu.product", "gpu.family", "gpu.compute", "accelerator")
_COMPANIONS: Final = ("-memory", "-core", ".shared")
_GROUPS_SHOWN: Final = 4
_NAMES_SHOWN: Final = 3


@dataclass(frozen=True)
class Needs:
    """What engine pods of a deployment, or of a stack by itself, need of a node."""

    requirements: tuple[NodeRequirement, ...] = ()
    resource: str | None = None
    devices: int = 1
    selector: Mapping[str, str] = field(default_factory=dict)
    tolerations: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Problem:
    """Why a node can't run it, or why that isn't known.

    Attributes:
        absent: the label that is missing, where that is all.
    """

    reason: str
    text: str
    absent: str | None = None


@dataclass(frozen=True)
class Fit:
    """How the nodes of a cluster fit.

    Attributes:
        matching: nodes that fit.
        unknown: nodes that lack labels and fit as far as one can see.
        reason: what is in the way of the node that comes closest; None where one fits.
        message: that in words, node by node.
    """

    matching: tuple[Node, ...]
    unknown: tuple[Node, ...]
    reason: str | None
    message: str


def build_needs(stack: Stack, hardware: Hardware | None = None) -> Needs:
    """The needs of a stack, with what a deployment overrides and adds."""
    if hardware is None:
        return Needs(
            stack.node_requirements,
            stack.resource_name,
            min(stack.supports.devices_per_replica, default=1),
            stack.node_selector,
            stack.tolerations,
        )
    return Needs(
        stack.node_requirements,
        hardware.resource_name or stack.resource_name,
        hardware.devices_per_replica,
        {**stack.node_selector, **hardware.node_selector},
        (*stack.tolerations, *hardware.tolerations),
    )


def decide_fit(needs: Needs, nodes: Iterable[Node]) -> Fit:
    """Compare every node with the needs."""
    examined = [(node, examine(node, needs)) for node in sorted(nodes, key=lambda n: n.name)]
    matching = tuple(node for node, problems in examined if not problems)
    unknown = tuple(
        node
        for node, problems in examined
        if problems and all(problem.reason == MISSING for problem in problems)
    )
    if matching:
        return Fit(matching, unknown, None, f"{_count(matching)} can run it")
    if unknown:
        about = [(node, problems) for node, problems in examined if node in unknown]
        return Fit((), unknown, MISSING, f"not known whether a node fits: {_told(about)}")
    if not examined:
        return Fit((), (), NO_NODE, "the cluster has no nodes")
    closest = min(examined, key=lambda pair: len(pair[1]))[1][0]
    return Fit((), (), closest.reason, f"none of {_count(examined)} fits: {_told(examined)}")


def examine(node: Node, needs: Needs) -> tuple[Problem, ...]:
    """Everything that keeps a node from running it, the plainest first."""
    return (
        *_selected(node, needs),
        *_tolerated(node, needs),
        *_equipped(node, needs),
        *(p for r in needs.requirements for p in _required(node, r)),
    )


def _selected(node: Node, needs: Needs) -> Iterable[Problem]:
    for label, value in sorted(needs.selector.items()):
        if node.labels.get(label) != value:
            found = node.labels.get(label)
            text = f"label {label} is {found or 'not set'}, nodeSelector wants {value}"
            yield Problem(NO_NODE, text)


def _tolerated(node: Node, needs: Needs) -> Iterable[Problem]:
    for key, value, effect in node.taints:
        if effect == "PreferNoSchedule":
            continue
        if not any(_bears(toleration, key, value, effect) for toleration in needs.tolerations):
            shown = f"{key}={value}:{effect}" if value else f"{key}:{effect}"
            yield Problem(NO_NODE, f"taint {shown} isn't tolerated")


def _bears(toleration: Mapping[str, Any], key: str, value: str, effect: str) -> bool:
    if toleration.get("effect") not in (None, "", effect):
        return False
    if toleration.get("key") not in (None, "", key):
        return False
    return toleration.get("operator") == "Exists" or (toleration.get("value") or "") == value


def _equipped(node: Node, needs: Needs) -> Iterable[Problem]:
    if needs.resource is None:
        return
    found = node.devices.get(needs.resource, 0)
    if found >= needs.devices:
        return
    text = f"{needs.resource}: {found} allocatable, wanted {needs.devices}"
    similar = similar_resources(node, needs)
    if similar:
        text += f"; it has {' and '.join(similar)}: set spec.hardware.resourceName if you mean that"
    yield Problem(NO_NODE, text)


def similar_resources(node: Node, needs: Needs) -> tuple[str, ...]:
    """Devices of the same vendor that a node has enough of, under another name."""
    domain = (needs.resource or "").split("/", 1)[0] + "/"
    return tuple(
        name
        for name, amount in sorted(node.devices.items())
        if name.startswith(domain)
        and name != needs.resource
        and amount >= needs.devices
        and not name.endswith(_COMPANIONS)
    )


def _required(node: Node, requirement: NodeRequirement) -> Iterable[Problem]:
    absent = [label for label in requirement.labels if label not in node.labels]
    for label in absent:
        yield Problem(MISSING, f"label {label} is missing, {_setter(label)} sets it", label)
    if absent:
        return
    value = ".".join(node.labels[label] for label in requirement.labels)
    text = f"{requirement.name()} is {value or 'empty'}, wanted {requirement.wanted()}"
    if requirement.at_least is not None:
        found, wanted = parse_version(value), parse_version(requirement.at_least)
        if found is None or wanted is None:
            yield Problem(MISSING, f"{text}: that isn't a version")
        elif found < wanted:
            yield Problem(_reason(requirement), text)
    elif requirement.allowed and value not in requirement.allowed:
        yield Problem(_reason(requirement), text)


def _reason(requirement: NodeRequirement) -> str:
    label = requirement.labels[0]
    if "driver" in label and requirement.at_least is not None:
        return DRIVER
    return CHIP if any(word in label for word in _CHIP_WORDS) else NO_NODE


def _setter(label: str) -> str:
    return next((who for start, who in _SETTERS if label.startswith(start)), "the node's admin")


def _told(examined: Sequence[tuple[Node, tuple[Problem, ...]]]) -> str:
    """The problems with the names of their nodes, those of the closest nodes first."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for node, problems in sorted(examined, key=lambda pair: len(pair[1])):
        groups.setdefault(_texts(problems), []).append(node.name)
    told = [f"{_names(names)}: {', '.join(texts)}" for texts, names in groups.items()]
    rest = len(told) - _GROUPS_SHOWN
    more = [f"and {rest} kinds of nodes more"] if rest > 0 else []
    return "; ".join([*told[:_GROUPS_SHOWN], *more])


def _texts(problems: Sequence[Problem]) -> tuple[str, ...]:
    """What is wrong; what is merely missing only where nothing is wrong, its labels together."""
    wrong = tuple(problem.text for problem in problems if problem.reason != MISSING)
    if wrong:
        return wrong
    absent: dict[str, list[str]] = {}
    for problem in problems:
        if problem.absent is not None:
            absent.setdefault(_setter(problem.absent), []).append(problem.absent)
    missing = (
        f"label{'s' * (len(labels) > 1)} {', '.join(labels)} missing, set by {setter}"
        for setter, labels in absent.items()
    )
    return (*(problem.text for problem in problems if problem.absent is None), *missing)


def _names(names: Sequence[str]) -> str:
    rest = len(names) - _NAMES_SHOWN
    shown = ", ".join(names[:_NAMES_SHOWN])
    return f"nodes {shown} and {rest} more" if rest > 0 else f"node{'s' * (len(names) > 1)} {shown}"


def _count(nodes: Sequence[object]) -> str:
    return f"{len(nodes)} node{'s' * (len(nodes) != 1)}"
