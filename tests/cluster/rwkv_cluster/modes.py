"""The one interface of the three ways to get a cluster, and the choice between them."""

from pathlib import Path
from typing import Protocol

from rwkv_cluster import errors, kind
from rwkv_cluster.current import CurrentCluster
from rwkv_cluster.local import LocalCluster
from rwkv_cluster.progress import Progress

MODES = ("local", "kind", "current")


class Cluster(Protocol):
    """What the demo and the tests ask of a cluster."""

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the cluster's admin."""

    def up(self, nodes: int) -> None:
        """Bring it up; harmless when it is up."""

    def down(self, *, forget: bool = False) -> None:
        """Remove it, on demand with the images kept for the next run; harmless without it."""

    def status(self) -> list[str]:
        """Return lines that tell how it is; empty when there is no cluster."""

    def load_image(self, local: str) -> None:
        """Make a built image usable in pods."""


def choose_mode(asked: str, *, kind_usable: bool) -> str:
    """Return the mode: what was asked for, else kind where Docker and kind are, else local."""
    if asked and asked not in MODES:
        raise errors.UsageError(f"CLUSTER={asked}: no such mode; one of {', '.join(MODES)}")
    return asked or ("kind" if kind_usable else "local")


def create(asked: str, name: str, context: str, progress: Progress) -> Cluster:
    """Return the cluster of a mode; nothing is started yet."""
    mode = choose_mode(asked, kind_usable=not asked and kind.is_usable())
    if mode == "kind":
        return kind.KindCluster(name, progress)
    if mode == "current":
        return CurrentCluster(name, context, progress)
    return LocalCluster(name, progress)
