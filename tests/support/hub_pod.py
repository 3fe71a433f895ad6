"""A hub inside the cluster under test, with a token."""

from __future__ import annotations

import json
from typing import Any

import installation
from world import World

URL = "http://hub:8080"
TOKEN = "hub-token-that-nobody-may-see-5f0c"
SECRET = {"name": "hub-token", "key": "token"}
_FILES = ("tests/e2e/hub_script.py", "tests/support/hub_server.py", "tests/support/fla_to_pth.py")


def start(world: World) -> None:
    """The hub, its Service, and the Secret with its token."""
    scripts = {path.rpartition("/")[2]: (installation.ROOT / path).read_text() for path in _FILES}
    secret = {"stringData": {SECRET["key"]: TOKEN}}
    ports = [{"name": f"p{port}", "port": port} for port in (8080, 443)]
    container = {
        "name": "hub",
        "image": world.images["server"],
        "command": ["python3", "/scripts/hub_script.py", TOKEN],
        # Busy machines answer late; a hub that is up stays so.
        "readinessProbe": {
            "httpGet": {"path": "/", "port": 8082},
            "periodSeconds": 1,
            "timeoutSeconds": 10,
            "failureThreshold": 60,
        },
        "volumeMounts": [{"name": "scripts", "mountPath": "/scripts"}],
        "env": [{"name": "PYTHONDONTWRITEBYTECODE", "value": "1"}],
    }
    pod = {
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "containers": [container],
        "volumes": [{"name": "scripts", "configMap": {"name": "hub"}}],
        # For port 443.
        "securityContext": {"runAsUser": 0},
    }
    for kind, fields in (
        ("Secret", secret),
        ("ConfigMap", {"data": scripts}),
        ("Service", {"spec": {"selector": {"app": "hub"}, "ports": ports}}),
        ("Pod", {"spec": pod}),
    ):
        metadata = {"name": SECRET["name"] if kind == "Secret" else "hub", "labels": {"app": "hub"}}
        world.kube.apply({"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields})
    world.kube.run("wait", "pod/hub", "--for=condition=Ready", "--timeout=90s", timeout=100)


def told(world: World) -> dict[str, Any]:
    """What the hub was asked and has sent."""
    path = "/api/v1/namespaces/default/pods/hub:8082/proxy/"
    answer: dict[str, Any] = json.loads(world.kube.run("get", "--raw", path))
    return answer


def hurry(world: World) -> None:
    """Let the hub be slow no more."""
    signal = "import os, signal; os.kill(1, signal.SIGUSR1)"
    world.kube.run("exec", "hub", "--", "python3", "-c", signal)


def stop(world: World) -> None:
    """Remove everything that `start` has made."""
    kinds = "pod,service,configmap,secret"
    world.kube.run("delete", kinds, "-l", "app=hub", "--wait=true")
