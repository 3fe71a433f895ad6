"""Nodes as the API server shows them: a plain one, and those that carry GPUs or NPUs."""

from __future__ import annotations

from typing import Any

from rwkv_operator.api.node import Node, parse_node

GPU_LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-H200",
    "nvidia.com/gpu.compute.major": "9",
    "nvidia.com/gpu.compute.minor": "0",
    "nvidia.com/cuda.driver-version.full": "580.95.05",
}
NPU_LABELS = {
    "kubernetes.io/arch": "arm64",
    "node.kubernetes.io/npu.chip.name": "910B3",
    "huawei.com/driver.version": "25.2.0",
}


def node(
    name: str = "node-a",
    labels: dict[str, str] | None = None,
    devices: dict[str, int] | None = None,
    taints: list[dict[str, str]] | None = None,
    **info: str,
) -> dict[str, Any]:
    """A node; `labels` come on top of the kubelet's."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "labels": {"kubernetes.io/arch": "amd64", **(labels or {})},
        },
        "spec": {"taints": taints} if taints else {},
        "status": status(devices, **info),
    }


def bare(name: str = "cpu-node", labels: dict[str, str] | None = None) -> dict[str, Any]:
    """A node to apply, as far as its kubelet doesn't write it."""
    obj = node(name, labels)
    del obj["metadata"]["uid"], obj["status"]
    return obj


def status(devices: dict[str, int] | None = None, **info: str) -> dict[str, Any]:
    """Status of a node with those devices; `info` is about its system."""
    amounts = {"cpu": "8", "memory": "32Gi", **{k: str(v) for k, v in (devices or {}).items()}}
    system = {"bootID": "boot-1", "systemUUID": "system-1", **info}
    return {"allocatable": amounts, "capacity": amounts, "nodeInfo": system}


def parsed(*args: Any, **kwargs: Any) -> Node:
    """The same, parsed."""
    return parse_node(node(*args, **kwargs))


def gpu(name: str = "gpu-a", **labels: str) -> Node:
    """A node with two GPUs that suits the catalogue's stack; `labels` replace its own."""
    return parsed(name, {**GPU_LABELS, **labels}, {"nvidia.com/gpu": 2})


def npu(name: str = "npu-a", **labels: str) -> Node:
    """A node with eight NPUs that suits the catalogue's stack; `labels` replace its own."""
    return parsed(name, {**NPU_LABELS, **labels}, {"huawei.com/Ascend910": 8})
