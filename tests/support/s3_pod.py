"""An S3 server inside the cluster under test, with one bucket."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any

import installation
import s3_gateway
from world import World

from build import docker_answers

IMAGE = "localhost/rwkv-operator/e2e-s3:1"
ACCESS_KEY = "e2e"
SECRET_KEY = secrets.token_hex(16)
PORT = 7070
STORE: dict[str, Any] = {
    "bucket": s3_gateway.BUCKET,
    "prefix": "e2e/states",
    "endpoint": f"http://s3:{PORT}",
    "credentialsSecretRef": {"name": "s3"},
}


def start(world: World) -> None:
    """The server, its Service, and the Secret that engines get."""
    installation.end_to_end_machine().load_images({"s3": build_image()})
    secret = {"accessKeyId": ACCESS_KEY, "secretAccessKey": SECRET_KEY}
    service = {"selector": {"app": "s3"}, "ports": [{"port": PORT}]}
    for kind, fields in (
        ("Secret", {"stringData": secret}),
        ("Service", {"spec": service}),
        ("Pod", {"spec": _pod(world)}),
    ):
        metadata = {"name": "s3", "labels": {"app": "s3"}}
        world.kube.apply({"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields})
    world.kube.run("wait", "pod/s3", "--for=condition=Ready", "--timeout=60s")


def stop(world: World) -> None:
    """Remove all of it."""
    world.kube.run("delete", "pod/s3", "service/s3", "secret/s3", "--wait=false")


@contextlib.contextmanager
def standing_still(world: World) -> Iterator[None]:
    """The server takes connections meanwhile, and answers none."""
    _signal(world, "SIGSTOP")
    try:
        yield
    finally:
        _signal(world, "SIGCONT")


_SIGNAL = """
import os, pathlib, signal, sys
names = {at: at.read_text().strip() for at in pathlib.Path('/proc').glob('[0-9]*/comm')}
(server,) = [at for at, name in names.items() if name == 'versitygw']
os.kill(int(server.parent.name), getattr(signal, sys.argv[1]))
"""


def _signal(world: World, name: str) -> None:
    world.kube.run("exec", "s3", "-c", "hand", "--", "python3", "-c", _SIGNAL, name)


def build_image() -> str:
    """An image that holds the server's binary and nothing else."""
    context = installation.ROOT / "build" / "e2e-s3"
    context.mkdir(parents=True, exist_ok=True)
    shutil.copy(s3_gateway.program(), context / "versitygw")
    file = installation.ROOT / "tests" / "e2e" / "s3.Dockerfile"
    builder = ["docker", "build"] if docker_answers() else ["buildah", "bud", "--isolation=chroot"]
    subprocess.run([*builder, "-f", str(file), "-t", IMAGE, str(context)], check=True)
    return IMAGE


def _pod(world: World) -> dict[str, Any]:
    data = {"name": "data", "mountPath": "/data"}
    keys = {"ROOT_ACCESS_KEY": "accessKeyId", "ROOT_SECRET_KEY": "secretAccessKey"}
    bucket = {
        "name": "bucket",
        "image": world.images["operator"],
        "command": ["python3", "-c", f"import os; os.mkdir('/data/{s3_gateway.BUCKET}')"],
        "volumeMounts": [data],
    }
    server = {
        "name": "s3",
        "image": IMAGE,
        "command": ["/versitygw", "--port", f":{PORT}", "posix", "/data"],
        "env": [
            {"name": name, "valueFrom": {"secretKeyRef": {"name": "s3", "key": key}}}
            for name, key in keys.items()
        ],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
        "volumeMounts": [data],
    }
    hand = {"name": "hand", "image": world.images["operator"], "command": ["sleep", "86400"]}
    return {
        "terminationGracePeriodSeconds": 0,
        # So that `hand` can stop the server, which has no shell and may not be process 1.
        "shareProcessNamespace": True,
        "automountServiceAccountToken": False,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 65532},
        "initContainers": [bucket],
        "containers": [server, hand],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
