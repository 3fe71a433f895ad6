"""The record of a running cluster: which subnet, nodes and binaries.

It is read to tell whether a cluster is up and to add to it. Nothing that cleans up needs it.
"""

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rwkv_cluster.layout import Layout


@dataclass(frozen=True)
class State:
    """What can't be derived from the cluster's name.

    Args:
        subnet: First three bytes of the node network.
        binaries: Folder of the binaries that it runs.
        nodes: How many nodes have been started, 0 while the control plane comes up.
    """

    subnet: str
    binaries: str
    nodes: int = 0

    def with_nodes(self, nodes: int) -> "State":
        """Return the record of the same cluster with another number of nodes."""
        return replace(self, nodes=nodes)


def path(cluster: Layout) -> Path:
    """Where the record is."""
    return cluster.run / "state.json"


def write(cluster: Layout, state: State) -> None:
    """Write the record whole or not at all."""
    target = path(cluster)
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_suffix(".new")
    scratch.write_text(json.dumps(asdict(state)) + "\n")
    os.replace(scratch, target)


def read(cluster: Layout) -> State | None:
    """Return the record; None when there is none or it makes no sense."""
    try:
        found = json.loads(path(cluster).read_text())
        return State(str(found["subnet"]), str(found["binaries"]), int(found["nodes"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
