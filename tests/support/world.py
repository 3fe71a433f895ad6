"""The cluster under end-to-end test: calls from a client pod, waits that say what was seen."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import installation
from kube import Kube, Wanted, condition, wait_condition, wait_for

# Brings a job to the process that `client_script` is in the client pod.
RELAY = """
import socket, sys
with socket.socket(socket.AF_UNIX) as job:
    job.connect('/tmp/calls')
    job.sendall(sys.stdin.buffer.read())
    job.shutdown(socket.SHUT_WR)
    sys.stdout.buffer.write(job.makefile('rb').read())
"""


@dataclasses.dataclass(frozen=True)
class World:
    """The cluster under test and what was put into it."""

    kube: Kube
    images: dict[str, str]

    def call(
        self,
        *calls: dict[str, Any],
        url: str = "http://chat",
        key: str = "",
        parallel: int = 1,
        until: str = "",
    ) -> list[dict[str, Any]]:
        """Make calls with the openai SDK from the client pod.

        With `until`, each is made again and again until the client pod has a file of that name:
        load that is there however fast the engines are and however long a look takes.
        """
        job = {
            "base_url": url,
            "api_key": key or self.api_key(),
            "model": "chat",
            "parallel": parallel,
            "calls": list(calls),
            "until": until,
        }
        command = ["exec", "-i", "client", "--", "python3", "-IS", "-c", RELAY]
        output = self.kube.run(*command, stdin=json.dumps(job), timeout=300)
        assert output, self.kube.logs("client", "--tail=20")
        answers: list[dict[str, Any]] = json.loads(output)
        return answers

    def make_file(self, path: str) -> None:
        """Make the file that calls of `until` wait for."""
        self.kube.run("exec", "client", "--", "touch", path)

    def api_key(self, name: str = "chat") -> str:
        """The generated key of a deployment."""
        data = self.kube.get("secret", f"{name}-api-key")["data"]
        return base64.b64decode(next(iter(data.values()))).decode()

    def wait_ready(self, name: str = "chat", timeout: float = 420) -> dict[str, Any]:
        """Wait until the deployment is Ready at its current generation."""

        def ready() -> dict[str, Any]:
            obj = self.kube.get("rwkv", name)
            found = condition(obj, "Ready")
            current = found.get("observedGeneration") == obj["metadata"]["generation"]
            if found.get("status") == "True" and current:
                return obj
            return {}

        try:
            return wait_for(ready, f"rwkv/{name} to be Ready", timeout, every=1)
        except TimeoutError as error:
            raise AssertionError(f"{error}\n{self.report(name)}") from None

    def wait_condition(self, name: str, wanted: Wanted, timeout: float = 120) -> str:
        """Wait until a condition is as wanted; returns its message."""
        try:
            found = wait_condition(lambda: self.kube.get("rwkv", name), wanted, timeout)
        except TimeoutError as error:
            raise AssertionError(f"rwkv/{name}: {error}\n{self.report(name)}") from None
        message: str = found["message"]
        return message

    def report(self, name: str) -> str:
        """What a person would look at when it doesn't get ready."""
        pods = self.kube.run("get", "pods", "-A", "-o", "wide")
        status = self.kube.run("get", "rwkv", name, "-o", "jsonpath={.status}")
        logs = self.kube.logs(
            "-l", f"serving.rwkv.dev/deployment={name}", "--all-containers", "--tail=25"
        )
        operator = self.kube.logs("-n", installation.NAMESPACE, "deploy/rwkv-operator", "--tail=40")
        return f"{pods}\n{status}\n{logs}\n{operator}"

    def engine_pods(self, name: str = "chat") -> dict[str, dict[str, Any]]:
        """The engine pods by name."""
        selector = f"serving.rwkv.dev/deployment={name},serving.rwkv.dev/component=engine"
        return {pod["metadata"]["name"]: pod for pod in self.kube.items("pods", "-l", selector)}

    def ask_ops(self, pod: str, path: str) -> dict[str, Any]:
        """What an engine tells on its ops port: `report` or `progress`."""
        raw = f"/api/v1/namespaces/default/pods/{pod}:8001/proxy/{path}"
        told: dict[str, Any] = json.loads(self.kube.run("get", "--raw", raw))
        return told

    def running(self, pod: str) -> int:
        """Requests that an engine is working on, by its own report."""
        count: int = self.ask_ops(pod, "report")["requests"]["running"]
        return count

    def is_replaced(self, name: str, uid: str) -> bool:
        """Whether another engine pod of the sample than that one has the name, and is ready."""
        pod = self.engine_pods().get(name)
        if pod is None or pod["metadata"]["uid"] == uid:
            return False
        told = pod["status"].get("conditions", [])
        return ("Ready", "True") in {(entry["type"], entry["status"]) for entry in told}

    @contextlib.contextmanager
    def no_new_pods(self) -> Iterator[None]:
        """Nodes take no pod meanwhile: a lost one stays away for as long as a test looks."""
        nodes = ["-l", "kubernetes.io/os=linux"]
        self.kube.run("cordon", *nodes)
        try:
            yield
        finally:
            self.kube.run("uncordon", *nodes)

    def router_urls(self, name: str = "chat") -> list[str]:
        """The address of each router pod."""
        selector = f"serving.rwkv.dev/deployment={name},serving.rwkv.dev/component=router"
        pods = self.kube.items("pods", "-l", selector)
        return [f"http://{pod['status']['podIP']}:8080" for pod in pods]


def deployment(name: str, **model_source: Any) -> dict[str, Any]:
    """A small deployment of one engine and one router."""
    return {
        "apiVersion": "serving.rwkv.dev/v1alpha1",
        "kind": "RWKVDeployment",
        "metadata": {"name": name},
        "spec": {
            "model": {"source": model_source or {"bundled": {"name": "tiny-recall"}}},
            "hardware": {"stack": "cpu"},
            "replicas": 1,
            "routing": {"replicas": 1},
            "state": {"store": {"ephemeral": {}}, "hotBytes": "16Mi"},
        },
    }
