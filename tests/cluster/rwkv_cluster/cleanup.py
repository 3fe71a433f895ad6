"""Removes every trace of a local cluster, whatever state it is in.

Each part is looked for by name and none is taken for granted, so it works after a bring-up that was
killed at any point, and a second time.
"""

import shutil
from pathlib import Path
from typing import Any

from rwkv_cluster import cgroups, errors, images, layout, netns, node, process, state
from rwkv_cluster.layout import Layout
from rwkv_cluster.process import Runner


def clean(runner: Runner) -> None:
    """Remove processes, namespaces, links, control groups and files; image stores and logs stay."""
    cluster = runner.layout
    _empty_stores(runner)
    cgroups.kill(cluster.cgroup)
    # Mounts, and the rules and links in the namespaces, went with the last process or go now.
    netns.delete(runner, cluster)
    cgroups.remove(cluster.cgroup)
    for folder in (cluster.run, cluster.live):
        if folder.exists():
            shutil.rmtree(folder, onerror=_forgive_absence)
    for fixed in node.FIXED_FOLDERS:
        remove_if_empty(Path(fixed))


def remove_if_empty(folder: Path) -> None:
    """Remove a folder that nobody uses."""
    try:
        folder.rmdir()
    except OSError:
        return


def _empty_stores(runner: Runner) -> None:
    """Take the pods out of the image stores, so that the next start finds only images."""
    cluster = runner.layout
    current = state.read(cluster)
    if current is None:
        return
    for number in range(1, layout.MAX_NODES + 1):
        here = cluster.node(number, current.subnet)
        store = images.Store(runner, here.socket, Path(current.binaries))
        if f"containerd{number}" in process.list_running(cluster) and store.is_up():
            # The kubelet would start them again.
            process.stop(cluster, f"kubelet{number}")
            cgroups.kill(here.cgroup)
            _try_purge(store)


def _try_purge(store: images.Store) -> None:
    """What stays in the store is purged at the next start."""
    try:
        store.purge()
    except errors.ClusterError:
        return


def _forgive_absence(_: object, __: str, failure: Any) -> None:
    error = failure[1]
    if not isinstance(error, FileNotFoundError):
        raise error


def describe_traces(cluster: Layout) -> list[str]:
    """Name what of a cluster is still on this machine; empty after `down`."""
    found = [f"process {pid}" for pid in sorted(cgroups.list_processes(cluster.cgroup))]
    found += [
        f"cgroup {root / cluster.cgroup}"
        for root in cgroups.read_hierarchies()
        if (root / cluster.cgroup).exists()
    ]
    found += [f"folder {path}" for path in (cluster.run, cluster.live) if path.exists()]
    found += [f"link {cluster.link}"] if Path("/sys/class/net", cluster.link).exists() else []
    for number in range(1, layout.MAX_NODES + 1):
        name = Path("/run/netns", layout.build_netns_name(cluster.name, number))
        found += [f"network namespace {name}"] if name.exists() else []
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    here = (f"{cluster.run}/", f"{cluster.files}/")
    found += [f"mount {line.split()[4]}" for line in mounts if line.split()[4].startswith(here)]
    return found
