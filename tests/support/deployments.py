"""Parsed deployments, stacks and contexts for tests of what the operator makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rwkv_operator.api import spec, stack
from rwkv_operator.manifests.context import Context

CRDS = Path(__file__).resolve().parents[2] / "crds"
SAMPLES = sorted((CRDS / "samples").glob("*.yaml"))
UID = "6f1c2f0e-0000-4000-8000-000000000001"


def raw(changes: Mapping[str, Any] | None = None, name: str = "chat") -> dict[str, Any]:
    """A small deployment as the API server has it; `changes` replace fields of its spec."""
    small: dict[str, Any] = {
        "model": {"source": {"bundled": {"name": "tiny-recall"}}},
        "hardware": {"stack": "cpu"},
    }
    metadata = {"namespace": "talk", "name": name, "uid": UID, "generation": 1}
    return {"metadata": metadata, "spec": {**small, **(changes or {})}}


def parsed(changes: Mapping[str, Any] | None = None, name: str = "chat") -> spec.Deployment:
    """The same, parsed."""
    return spec.parse_deployment(raw(changes, name))


def load(path: Path) -> dict[str, Any]:
    """A sample of the repo, as it is written."""
    obj: dict[str, Any] = yaml.safe_load(path.read_text())
    return obj


def sample(path: Path, namespace: str = "talk", uid: str = UID) -> spec.Deployment:
    """A sample of the repo, parsed."""
    obj = load(path)
    obj["metadata"] |= {"namespace": namespace, "uid": uid}
    return spec.parse_deployment(obj)


def cpu_stack() -> stack.Stack:
    """The catalogue's cpu stack, validated."""
    obj = cpu_stack_object()
    obj["metadata"]["uid"] = UID
    return stack.parse_stack(obj)


def cpu_stack_object() -> dict[str, Any]:
    """The same as it is applied."""
    obj = load(CRDS / "stacks" / "cpu.yaml")
    obj["spec"]["evidence"] = {"status": "Validated", "report": "a run", "sha256": "0" * 64}
    return obj


def catalogue(name: str, **changes: Any) -> stack.Stack:
    """A stack of the catalogue as its file says it; `changes` replace fields of its spec."""
    obj = load(CRDS / "stacks" / f"{name}.yaml")
    obj["metadata"]["uid"] = UID
    return stack.parse_stack({**obj, "spec": {**obj["spec"], **changes}})


def context(**changes: Any) -> Context:
    """A context with the cpu stack; `changes` replace its fields."""
    return Context(
        **{
            "stack": cpu_stack(),
            "operator_image": "registry.example/operator:1",
            "router_image": "registry.example/router:1",
            "operator_namespace": "rwkv-system",
            "operator_labels": {"app.kubernetes.io/name": "rwkv-operator"},
            **changes,
        }
    )
