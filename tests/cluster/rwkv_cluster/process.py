"""Starts the programs of a cluster, and the short commands that prepare it.

Every child holds the cluster's lock until it has joined the cluster's control group (components) or
ended (commands). So when `down` gets the lock after a bring-up was killed, nothing is half-born.
"""

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rwkv_cluster import cgroups, errors, tools
from rwkv_cluster.layout import Layout

LOCK_SECONDS = 120
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# Joins every hierarchy, leaves its id, lets go of the lock, becomes the component.
_SPAWN = """
lock=$1; pidfile=$2; shift 2
while [ "$1" != -- ]; do echo $$ > "$1" || exit 70; shift; done; shift
echo $$ > "$pidfile"
eval "exec $lock>&-"
exec "$@"
"""


@dataclass(frozen=True)
class Component:
    """A long-running program of the cluster.

    Args:
        name: Unique in the cluster; names its log and pid file.
        command: Program and arguments.
        enter: What puts it into its namespaces: a command in front of its own.
        environment: The whole environment; nothing of the caller's leaks in.
    """

    name: str
    command: Sequence[str]
    enter: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Runner:
    """Runs things for one cluster whose lock the caller holds."""

    layout: Layout
    lock: int

    def run(self, *command: str, stdin: int | None = None, seconds: float = 60) -> str:
        """Run a short command to its end; return what it printed, raise with what it complained."""
        program = tools.find(command[0])
        done = subprocess.run(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL if stdin is None else stdin,
            capture_output=True,
            text=True,
            pass_fds=(self.lock,),
            timeout=seconds,
        )
        if done.returncode != 0:
            said = done.stderr.strip() or done.stdout.strip()
            raise errors.ClusterError(f"{' '.join(command)}: ended with {done.returncode}: {said}")
        return done.stdout

    def try_run(self, *command: str, seconds: float = 60) -> bool:
        """Run a short command whose failure is no news; return whether it worked."""
        try:
            self.run(*command, seconds=seconds)
        except (errors.ClusterError, subprocess.TimeoutExpired):
            return False
        return True

    def spawn(self, component: Component) -> None:
        """Start a component in the cluster's control group; its log starts anew."""
        layout = self.layout
        joins = [str(path) for path in cgroups.list_join_files(f"{layout.cgroup}/system")]
        shell = ["sh", "-c", _SPAWN, "spawn", str(self.lock), str(pid_file(layout, component.name))]
        with log_file(layout, component.name).open("wb") as log:
            subprocess.Popen(
                [*shell, *joins, "--", *component.enter, *component.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd="/",
                env={"PATH": PATH, "HOME": "/nonexistent", **component.environment},
                pass_fds=(self.lock,),
                start_new_session=True,
            )


def pid_file(layout: Layout, name: str) -> Path:
    """Where a component's process id is written."""
    return layout.run / "pids" / name


def log_file(layout: Layout, name: str) -> Path:
    """Where a component's output goes."""
    return layout.logs / f"{name}.log"


def list_running(layout: Layout) -> dict[str, int]:
    """Return name and process id of the components that are alive."""
    members = cgroups.list_processes(layout.cgroup)
    running = {}
    for path in sorted((layout.run / "pids").glob("*")):
        text = path.read_text().strip()
        # A pid may have been given to a stranger since: only a member of the group counts.
        if text and int(text) in members and not _is_zombie(int(text)):
            running[path.name] = int(text)
    return running


def stop(layout: Layout, *names: str, seconds: float = 20) -> None:
    """Kill components and wait until they are gone; the absent are fine."""
    deadline = time.monotonic() + seconds
    while alive := {name: pid for name, pid in list_running(layout).items() if name in names}:
        if time.monotonic() > deadline:
            raise errors.ClusterError(f"{', '.join(alive)}: can't be killed")
        for pid in alive.values():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.02)


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@contextmanager
def hold(layout: Layout, seconds: float = LOCK_SECONDS) -> Iterator[Runner]:
    """Hold the cluster's lock and hand out a Runner."""
    deadline = time.monotonic() + seconds
    lock = _try_lock(layout)
    while lock is None:
        if time.monotonic() > deadline:
            raise errors.UsageError(
                f"cluster {layout.name}: another up or down is at work on it; wait or end that one"
            )
        time.sleep(0.1)
        lock = _try_lock(layout)
    try:
        yield Runner(layout, lock)
    finally:
        os.close(lock)


def _try_lock(layout: Layout) -> int | None:
    layout.lock.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(layout.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # `down` removes the file: a lock on a file that is no longer there excludes nobody.
        if layout.lock.stat().st_ino == os.fstat(lock).st_ino:
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None
