"""From nothing to an installed operator, for the demo and the end-to-end tests alike."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from kube import Kube

ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "rwkv-system"
RELEASE = "rwkv-operator"
PARTS = ("server", "operator", "router")


@dataclasses.dataclass(frozen=True)
class Machine:
    """Which cluster to use, and where progress goes."""

    cluster_name: str
    say: Callable[[str], None] = print

    def cluster(self, *args: str) -> str:
        """Run the cluster program; its progress goes to standard error, its answer is returned."""
        path = os.pathsep.join([str(ROOT / "tests" / "cluster"), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, "-m", "rwkv_cluster", "--name", self.cluster_name, *args]
        return _output(command, {"PYTHONPATH": path})

    def bring_up(self) -> Kube:
        """Start the cluster, or find it running."""
        self.cluster("up")
        return self.kube()

    def kube(self) -> Kube:
        """The running cluster's kubectl and helm."""
        return Kube(
            kubectl=self.cluster("bin", "kubectl").strip(),
            helm=self.cluster("bin", "helm").strip(),
            kubeconfig=Path(self.cluster("kubeconfig").strip()),
        )

    def build_images(self) -> dict[str, str]:
        """Build what changed; image references by part."""
        build = [sys.executable, str(ROOT / "image" / "build.py")]
        references = _output([*build, *PARTS], {}).split()
        return dict(zip(PARTS, references, strict=True))

    def load_images(self, images: dict[str, str]) -> None:
        """Put the images into the cluster's nodes."""
        for reference in images.values():
            self.cluster("load-image", reference)

    def bring_down(self) -> None:
        """Stop the cluster and remove what it made."""
        self.cluster("down")


def end_to_end_machine() -> Machine:
    """The cluster that all end-to-end tests share; RWKV_E2E_CLUSTER names another."""
    return Machine(os.environ.get("RWKV_E2E_CLUSTER", "rwkve2e"))


def install_chart(kube: Kube, images: dict[str, str], *settings: str) -> None:
    """`helm upgrade --install` from this checkout, waiting for the operator."""
    chart = str(ROOT / "charts" / "rwkv-operator")
    values = [f"images.{part}={reference}" for part, reference in images.items()]
    flags = [flag for value in (*values, *settings) for flag in ("--set", value)]
    place = ["--namespace", NAMESPACE, "--create-namespace"]
    kube.run_helm("upgrade", "--install", RELEASE, chart, *place, *flags, "--wait")


def _output(command: list[str], extra: dict[str, str]) -> str:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=False, env={**os.environ, **extra}
    )
    if done.returncode != 0:
        raise SystemExit(f"failed ({done.returncode}): {' '.join(command)}")
    return done.stdout
