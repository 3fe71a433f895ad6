"""One cluster for all end-to-end tests, with images, the chart and a client pod in it."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import installation
import pytest
from kube import Kube
from world import World

from build import docker_answers

HERE = Path(__file__).parent
SAMPLE = installation.ROOT / "crds" / "samples" / "tiny-recall.yaml"


@pytest.fixture(scope="session")
def world() -> Iterator[World]:
    """The cluster with images, the chart and the client pod; removed afterwards."""
    machine = installation.end_to_end_machine()
    try:
        with concurrent.futures.ThreadPoolExecutor() as pool:
            built = pool.submit(build_images, machine)
            kube = machine.bring_up()
            images, client = built.result()
        machine.load_images({**images, "client": client})
        installation.install_chart(kube, images)
        start_client(kube, client)
        yield World(kube, images)
    finally:
        if not os.environ.get("RWKV_E2E_KEEP"):
            machine.bring_down()


@pytest.fixture(scope="session")
def chat(world: World) -> World:
    """The world with the sample applied and Ready."""
    world.kube.apply(SAMPLE)
    world.wait_ready()
    return world


def build_images(machine: installation.Machine) -> tuple[dict[str, str], str]:
    """The product's images, and the client's."""
    images = machine.build_images()
    return images, build_client_image(images["operator"])


def build_client_image(base: str) -> str:
    """The operator's image plus the openai SDK."""
    context = installation.ROOT / "build" / "e2e-client"
    uv = Path(sys.executable).parent / "uv"
    pip = [str(uv), "pip", "install", "-q", "--target", str(context / "site"), "--upgrade"]
    constraints = str(installation.ROOT / "image" / "constraints" / "dev.txt")
    subprocess.run([*pip, "-c", constraints, "openai"], check=True)
    reference = f"localhost/rwkv-operator/e2e-client:{base.rsplit(':', 1)[1]}"
    builder = ["docker", "build"] if docker_answers() else ["buildah", "bud", "--isolation=chroot"]
    options = ["-f", str(HERE / "client.Dockerfile"), "-t", reference]
    subprocess.run([*builder, *options, f"--build-arg=BASE={base}", str(context)], check=True)
    return reference


def start_client(kube: Kube, image: str) -> None:
    """A pod that waits until a test has calls for it."""
    script = (HERE / "client_script.py").read_text()
    container = {
        "name": "client",
        "image": image,
        "command": ["python3", "-c", script],
        "startupProbe": {"exec": {"command": ["test", "-S", "/tmp/calls"]}, "periodSeconds": 1},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    spec = {
        "containers": [container],
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    kube.run("delete", "pod", "client", "--ignore-not-found")
    kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client"}, "spec": spec})
    kube.run("wait", "pod/client", "--for=condition=Ready", "--timeout=60s")
