"""The operator as a process of its own against an API server, with the rights of its Role only."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path

from kube import Kube, wait_for

from rwkv_cluster.ports import free_port
from rwkv_operator.cluster.kinds import PERMISSIONS

USER = "rwkv-operator"


def grant(kube: Kube, user: str = USER) -> None:
    """Give a user exactly the rights that the operator's table lists."""
    rules = [
        {"apiGroups": [rule.group], "resources": [rule.resource], "verbs": list(rule.verbs)}
        for rule in PERMISSIONS
    ]
    meta = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": user}}
    role_ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": user}
    subject = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}
    kube.apply({**meta, "kind": "ClusterRole", "rules": rules})
    kube.apply({**meta, "kind": "ClusterRoleBinding", "roleRef": role_ref, "subjects": [subject]})


class OperatorProcess:
    """A running operator: its metrics, its log, its end."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, log: Path) -> None:
        self.process = process
        self.port = port
        self.log = log

    def metric(self, name: str) -> float:
        """Sum of a metric over its labels."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        samples = [line for line in lines if line.startswith((f"{name} ", f"{name}{{"))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in samples)

    def mutating(self) -> float:
        """Requests so far that may write."""
        return self.metric("rwkv_operator_mutating_requests_total")

    def passes(self) -> float:
        """Finished passes so far."""
        return self.metric("rwkv_operator_reconciles_total")

    def rss_bytes(self) -> float:
        """Resident memory."""
        return self.metric("process_resident_memory_bytes")

    def is_serving(self) -> bool:
        """Whether /readyz says so."""
        assert self.process.poll() is None, self.log.read_text()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/readyz"):
                return True
        except urllib.error.URLError as error:
            if isinstance(error, urllib.error.HTTPError):
                error.close()
            return False

    def end(self) -> int:
        """End it as a kubelet does; its exit status."""
        self.process.terminate()
        return self.process.wait(20)

    def kill(self) -> None:
        """End it as a node failure would."""
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def running(
    kubeconfig: Path, log: Path, environ: Mapping[str, str] | None = None
) -> Iterator[OperatorProcess]:
    """Run the operator until the block ends, then kill it: an end in order takes seconds."""
    port = free_port()
    settings = {
        "KUBECONFIG": str(kubeconfig),
        "RWKV_OPERATOR_IMAGE": "registry.example/operator:1",
        "RWKV_ROUTER_IMAGE": "registry.example/router:1",
        "RWKV_OPERATOR_LABELS": "app.kubernetes.io/name=rwkv-operator",
        "POD_NAMESPACE": "rwkv-system",
        "RWKV_HTTP_PORT": str(port),
        **(environ or {}),
    }
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "rwkv_operator", "run"],
            env={**os.environ, **settings},
            cwd=Path(__file__).resolve().parents[2] / "operator",
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    try:
        operator = OperatorProcess(process, port, log)
        wait_for(operator.is_serving, "the operator to be ready", every=0.05)
        yield operator
    finally:
        process.kill()
        process.wait()
