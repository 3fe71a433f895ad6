"""The current mode: a cluster that the user has already, used only after its context is named."""

import os
import subprocess
from pathlib import Path

from rwkv_cluster import build, errors, images, pki
from rwkv_cluster.layout import Layout
from rwkv_cluster.progress import Progress


class CurrentCluster:
    """A cluster of the user's kubeconfig; it is neither made nor removed here.

    Args:
        name: Names only the folder of the extracted kubeconfig.
        context: The kubeconfig context to use.
        progress: Told of every step.
    """

    def __init__(self, name: str, context: str, progress: Progress) -> None:
        if not context:
            raise errors.UsageError(
                "CLUSTER=current changes your own cluster: name its context with --context"
            )
        self._context = context
        self._layout = Layout(name, build.cache_dir())
        self._progress = progress

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig with this one context."""
        return self._layout.files / "current.kubeconfig"

    def up(self, nodes: int) -> None:
        """Extract the context and check that the cluster answers."""
        view = ("config", "view", "--flatten", "--minify", f"--context={self._context}")
        text = self._kubectl(*view)
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        pki.write_private(self.kubeconfig, text.encode())
        answer = self._kubectl(f"--kubeconfig={self.kubeconfig}", "version")
        self._progress.say(f"context {self._context}: {answer.splitlines()[-1]}")

    def down(self, *, forget: bool = False) -> None:
        """Forget the context; the cluster stays."""
        self.kubeconfig.unlink(missing_ok=True)

    def status(self) -> list[str]:
        """Return lines that tell how it is; empty when the context isn't in use."""
        return [f"kubeconfig: {self.kubeconfig}"] if self.kubeconfig.exists() else []

    def load_image(self, local: str) -> None:
        """Images must come from a registry that the cluster reaches."""
        reference = images.normalize(local)
        raise errors.UsageError(
            f"{reference}: can't be loaded into context {self._context}; "
            "push it to a registry that the cluster reaches and name it there"
        )

    def _kubectl(self, *args: str) -> str:
        kubectl = build.binary("kubectl", self._progress)
        done = subprocess.run([str(kubectl), *args], capture_output=True, text=True, env=os.environ)
        if done.returncode != 0:
            raise errors.ClusterError(f"context {self._context}: {done.stderr.strip()}")
        return done.stdout
