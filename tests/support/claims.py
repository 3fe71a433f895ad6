"""Claims with models on them, for the cluster under test."""

from __future__ import annotations

from kube import wait_for
from world import World


def make_claim(world: World, name: str) -> None:
    """A claim of one node."""
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    metadata = {"name": name}
    kind = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata}
    world.kube.apply({**kind, "spec": claim})


def fill_claim(world: World, name: str, script: str) -> None:
    """Run a Python script in a pod of the engine's image with the claim at /models."""
    container = {
        "name": "fill",
        "image": world.images["server"],
        "command": ["python3", "-c", script],
        "volumeMounts": [{"name": "models", "mountPath": "/models"}],
    }
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": name}}],
        # A volume that an engine has mounted first, read-only, belongs to nobody else.
        "securityContext": {"runAsUser": 0},
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "fill"}, "spec": spec}
    world.kube.apply(pod)
    wait_for(
        lambda: world.kube.get("pod", "fill")["status"].get("phase") == "Succeeded",
        f"the claim {name} to be filled",
        timeout=90,
    )
    world.kube.run("delete", "pod", "fill")
