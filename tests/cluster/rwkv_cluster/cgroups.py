"""Control groups: the one sure record of which processes belong to a cluster.

A process joins before it becomes a component, its children (pods too) are born inside, and nothing
leaves: whatever is listed under the cluster's group is the cluster's.
"""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from rwkv_cluster import errors

CPUSET_FILES = ("cpuset.cpus", "cpuset.mems")
V2_CONTROLLERS = ("cpuset", "cpu", "io", "memory", "pids")
KILL_SECONDS = 30


def parse_hierarchies(mountinfo: str) -> list[Path]:
    """Return the mount points of all control-group hierarchies, from /proc/self/mountinfo."""
    points = []
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        if right.split(" ", 1)[0] in ("cgroup", "cgroup2"):
            points.append(Path(left.split(" ")[4]))
    return points


def read_hierarchies() -> list[Path]:
    """Return the hierarchies of this machine; v1, v2 and the hybrid of both all work."""
    found = parse_hierarchies(Path("/proc/self/mountinfo").read_text())
    if not found:
        raise errors.UsageError("no control groups are mounted under /sys/fs/cgroup")
    return found


def create(name: str) -> None:
    """Make a group in every hierarchy, usable for containers below it."""
    for root in read_hierarchies():
        path = root
        for part in Path(name).parts:
            _open_controllers(path)
            path = path / part
            path.mkdir(exist_ok=True)
            _fill_cpuset(path)


def list_join_files(name: str) -> list[Path]:
    """Return the files a process writes its id to in order to join."""
    return [root / name / "cgroup.procs" for root in read_hierarchies()]


def list_processes(name: str) -> set[int]:
    """Return the ids of all processes in a group and below it."""
    found: set[int] = set()
    for path in _find(name, "cgroup.procs"):
        try:
            found.update(int(line) for line in path.read_text().split())
        except OSError:
            continue
    return found - {0}


def kill(name: str, seconds: float = KILL_SECONDS) -> int:
    """Kill everything in a group, also what is being born; return how many were there."""
    deadline = time.monotonic() + seconds
    killed: set[int] = set()
    while alive := list_processes(name):
        if time.monotonic() > deadline:
            raise errors.ClusterError(f"cgroup {name}: processes {sorted(alive)} can't be killed")
        _thaw(name)
        for pid in alive:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        killed |= alive
        time.sleep(0.02)
    return len(killed)


def _thaw(name: str) -> None:
    """A frozen process doesn't die: its runtime may have been killed between freeze and thaw."""
    for file, value in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
        for path in _find(name, file):
            try:
                path.write_text(value)
            except OSError:
                continue


def _find(name: str, file: str) -> Iterator[Path]:
    """Yield that file of a group and of all below it, while they come and go."""
    for root in read_hierarchies():
        # Path.rglob would raise when a folder vanishes under it; os.walk passes over it.
        for folder, _, files in os.walk(root / name):
            if file in files:
                yield Path(folder, file)


def remove(name: str, seconds: float = 5) -> None:
    """Remove an empty group with all below it, in every hierarchy."""
    deadline = time.monotonic() + seconds
    for root in read_hierarchies():
        # The kernel frees a group a moment after its last process.
        while not _try_remove(root / name):
            if time.monotonic() > deadline:
                raise errors.ClusterError(f"{root / name}: can't be removed, it is still in use")
            time.sleep(0.05)


def _try_remove(top: Path) -> bool:
    if not top.exists():
        return True
    for folder, _, _ in os.walk(top, topdown=False):
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def _fill_cpuset(path: Path) -> None:
    """A new v1 cpuset is empty, and no process may join it then."""
    for name in CPUSET_FILES:
        file, parent = path / name, path.parent / name
        # On v2 an empty file means: whatever the parent has.
        if (path / "cpuset.cpu_exclusive").exists() and not file.read_text().strip():
            file.write_text(parent.read_text())


def _open_controllers(path: Path) -> None:
    """On v2 a controller works in children only when the parent passes it on."""
    switch = path / "cgroup.subtree_control"
    if not switch.exists():
        return
    for controller in V2_CONTROLLERS:
        try:
            switch.write_text(f"+{controller}")
        except OSError:
            continue
