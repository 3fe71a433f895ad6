"""The kind mode: a cluster in containers of a Docker engine, made by the `kind` program."""

import shutil
import subprocess
import tempfile
from pathlib import Path

from rwkv_cluster import build, errors, images
from rwkv_cluster.layout import Layout
from rwkv_cluster.progress import Progress


class KindCluster:
    """A cluster that kind makes.

    Args:
        name: Its name.
        progress: Told of every step.
    """

    def __init__(self, name: str, progress: Progress) -> None:
        self._name = f"rwkv-{name}"
        self._layout = Layout(name, build.cache_dir())
        self._progress = progress

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the cluster's admin."""
        return self._layout.files / "kind.kubeconfig"

    def up(self, nodes: int) -> None:
        """Make the cluster unless it is there; the user's own kubeconfig isn't touched."""
        self.kubeconfig.parent.mkdir(parents=True, exist_ok=True)
        if self._name in self._list():
            self._progress.say(f"kind cluster {self._name} is up already")
        else:
            with (
                self._progress.step(f"kind cluster {self._name}"),
                tempfile.TemporaryDirectory() as at,
            ):
                config = Path(at) / "kind.json"
                config.write_text(build_config(nodes))
                options = (f"--config={config}", f"--kubeconfig={self.kubeconfig}")
                _run("kind", "create", "cluster", f"--name={self._name}", *options)
        text = _run("kind", "get", "kubeconfig", f"--name={self._name}")
        self.kubeconfig.write_text(text)
        self.kubeconfig.chmod(0o600)

    def down(self, *, forget: bool = False) -> None:
        """Remove the cluster."""
        with self._progress.step(f"kind delete {self._name}"):
            options = (f"--kubeconfig={self.kubeconfig}",)
            _run("kind", "delete", "cluster", f"--name={self._name}", *options)
        self.kubeconfig.unlink(missing_ok=True)

    def status(self) -> list[str]:
        """Return lines that tell how it is; empty when there is no cluster."""
        if self._name not in self._list():
            return []
        return [f"kind cluster {self._name}: there", f"kubeconfig: {self.kubeconfig}"]

    def load_image(self, local: str) -> None:
        """Copy an image of the Docker engine, or else of buildah, to every node."""
        reference = images.normalize(local)
        with self._progress.step(f"kind load {reference}"):
            if _is_in_docker(local):
                _run("kind", "load", "docker-image", f"--name={self._name}", local)
                return
            with tempfile.TemporaryDirectory() as at:
                archive = Path(at) / "image.tar"
                _run("buildah", "push", local, f"docker-archive:{archive}:{reference}")
                _run("kind", "load", "image-archive", f"--name={self._name}", str(archive))

    def _list(self) -> list[str]:
        return _run("kind", "get", "clusters").split()


def build_config(nodes: int) -> str:
    """kind's configuration: the first node has the control plane."""
    roles = ["control-plane", *["worker"] * (nodes - 1)]
    lines = ["kind: Cluster", "apiVersion: kind.x-k8s.io/v1alpha4", "nodes:"]
    return "\n".join([*lines, *(f"- role: {role}" for role in roles)]) + "\n"


def is_usable() -> bool:
    """Whether kind is installed and a Docker engine answers."""
    if shutil.which("kind") is None or shutil.which("docker") is None:
        return False
    return subprocess.run(["docker", "info"], capture_output=True).returncode == 0


def _is_in_docker(local: str) -> bool:
    if shutil.which("docker") is None:
        return False
    return (
        subprocess.run(["docker", "image", "inspect", local], capture_output=True).returncode == 0
    )


def _run(*command: str) -> str:
    if shutil.which(command[0]) is None:
        raise errors.MissingTool(command[0], "install it, or use CLUSTER=local")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise errors.ClusterError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout
