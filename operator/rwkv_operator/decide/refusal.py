"""What follows from a preflight that refuses: when engines are taken away, and when they return.

A pod that found the wrong chip finds it again at every restart. Where nothing else runs, the
engines are scaled to zero and the refusal is kept, until something changes that it depends on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from rwkv_operator.api import conditions
from rwkv_operator.api.conditions import Condition
from rwkv_operator.api.node import Node
from rwkv_operator.api.observed import Observed, parse_workload
from rwkv_operator.api.pods import Pod
from rwkv_operator.api.refusal import Refusal, parse_refusal
from rwkv_operator.api.stack import Stack
from rwkv_operator.decide.compare import differences


def refusal_key(stack: Stack, template: Mapping[str, Any], candidates: Iterable[Node]) -> str:
    """Hash of everything that a preflight's verdict depends on.

    Args:
        stack: its spec decides what is wanted.
        template: of the engine pods, with image and configuration.
        candidates: nodes that the pods may land on.
    """
    nodes = [
        [node.name, node.uid, *node.system, dict(node.labels), dict(node.devices)]
        for node in sorted(candidates, key=lambda node: node.name)
    ]
    value = [stack.name, stack.uid, stack.generation, template, nodes]
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def decide_refusal(
    key: str,
    template: Mapping[str, Any],
    statefulset: Mapping[str, Any] | None,
    pods: Iterable[Pod],
) -> Refusal | None:
    """The refusal that holds now: the kept one while it is current, or a new one of a pod.

    Args:
        key: what `refusal_key` says now.
        template: of the engine pods, as it is wanted.
        statefulset: the live one.
        pods: of the deployment.
    """
    kept = parse_refusal(statefulset)
    if kept is not None and kept.key == key:
        return kept
    engines = [pod for pod in pods if pod.component == "engine" and not pod.terminating]
    if statefulset is None or any(_may_serve(pod) for pod in engines):
        return None
    workload = parse_workload(statefulset)
    rolled_out = not differences(template, statefulset["spec"]["template"])
    if workload is None or not workload.current or not rolled_out:
        # What a pod of an older template says is no word on the wanted one.
        return None
    for pod in sorted(engines, key=lambda pod: pod.name):
        if pod.revision == workload.revision and refuses(pod):
            return _refusal(key, pod)
    return None


def refuses(pod: Pod) -> bool:
    """Whether the pod's preflight found something else than the stack wants."""
    said = pod.failure.said if pod.failure else None
    return said is not None and said.reason == conditions.RUNTIME_MISMATCH


def _may_serve(pod: Pod) -> bool:
    """Whether the pod serves, or may do so once it has loaded or got over a busy moment."""
    return pod.ready or (pod.started and not refuses(pod))


def decide_disagreement(admitted: Condition, observed: Observed) -> Condition:
    """The Admitted condition in view of the pods: a preflight that disagrees turns it False."""
    if observed.refusal is not None:
        return _disagreed(admitted, observed.refusal)
    for pod in observed.pods_of("engine"):
        if refuses(pod):
            return _disagreed(admitted, _refusal("", pod))
    return admitted


def _disagreed(admitted: Condition, refusal: Refusal) -> Condition:
    if admitted.status == "False":
        return admitted
    return dataclasses.replace(
        admitted, status="False", reason=conditions.RUNTIME_MISMATCH, message=refusal.text()
    )


def _refusal(key: str, pod: Pod) -> Refusal:
    said = pod.failure.said if pod.failure else None
    assert said is not None
    return Refusal(
        key=key,
        pod=pod.name,
        node=pod.node,
        message=said.message,
        found=said.found or "unknown",
        wanted=said.wanted or "unknown",
    )
