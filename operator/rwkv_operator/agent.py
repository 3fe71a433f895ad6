"""The router pod's agent: API keys and config from the pod's mounts into a running HAProxy.

It knows two directories and two sockets, and neither kopf nor the Kubernetes API. A new key is put
in force without a reload; a new config by a reload, which HAProxy's master refuses for a bad one.
Whatever fails is said in `/status` and tried again.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, get_args

from rwkv_operator import agent_haproxy, agent_keys, agent_status, names
from rwkv_operator.agent_status import Problem
from rwkv_operator.manifests import haproxy

INTERVAL_SECONDS: Final = 1.0
REFUSED_AGAIN_SECONDS: Final = 60.0
"""A config that HAProxy refuses stays bad, unless it was the pod that had a bad moment."""

log = logging.getLogger("rwkv-operator-agent")


@dataclass(frozen=True)
class Paths:
    """Where things are in the pod.

    Attributes:
        config: HAProxy's config.
        run: the folder that agent and HAProxy share.
        keys: the mounted Secret; None with `auth.mode: Open`.
    """

    config: Path
    run: Path
    keys: Path | None

    @property
    def key_map(self) -> Path:
        """The map that HAProxy reads at start."""
        return self.run / Path(haproxy.KEY_MAP).name

    def haproxy(self) -> agent_haproxy.HAProxy:
        """The HAProxy whose sockets are in the shared folder."""
        return agent_haproxy.HAProxy(
            stats=self.run / Path(haproxy.STATS_SOCKET).name,
            master=self.run / Path(haproxy.MASTER_SOCKET).name,
        )


@dataclass(frozen=True)
class _Refusal:
    digest: str
    reason: str
    at: float


class Agent:
    """Compares what is mounted with what is in force, each time anew."""

    def __init__(
        self, paths: Paths, proxy: agent_haproxy.HAProxy, clock: Callable[[], float]
    ) -> None:
        """Know nothing yet of what is in force."""
        self._paths = paths
        self._proxy = proxy
        self._clock = clock
        self._keys_in_force: str | None = None
        self._refused: _Refusal | None = None

    def step(self) -> agent_status.Status:
        """Look once, act where something differs, and say what is in force now.

        Keys come first: the workers of a reload read the map from the disk.
        """
        key_problems = self._sync_keys()
        running, config_problems = self._sync_config()
        problems = sorted({*key_problems, *config_problems}, key=_severity)
        return agent_status.Status(running, self._keys_in_force, tuple(problems))

    def _sync_keys(self) -> list[Problem]:
        if self._paths.keys is None:
            return []
        try:
            keys = agent_keys.read_keys(self._paths.keys)
        except OSError as error:
            # The kubelet puts all files of a changed Secret in place while they are read.
            return [Problem("InvalidAPIKeys", f"API keys: {error}")]
        problems = [Problem("InvalidAPIKeys", f"API keys: {error}") for error in keys.errors]
        if keys.digest == self._keys_in_force:
            return problems
        try:
            agent_keys.write_map(self._paths.key_map, keys.map_text)
            self._proxy.replace_map(self._paths.key_map, keys.tenants)
        except (agent_haproxy.HAProxyError, OSError) as error:
            return [*problems, Problem("HAProxyUnreachable", str(error))]
        self._keys_in_force = keys.digest
        log.info("API keys of %d tenants are in force", len(keys.tenants))
        return problems

    def _sync_config(self) -> tuple[str | None, list[Problem]]:
        """Bring the config on disk into force; gives the hash of the one that is."""
        running = None
        try:
            running = self._proxy.running_config()
            wanted = haproxy.config_hash(self._paths.config.read_text())
            if wanted is None:
                raise agent_haproxy.ConfigRefused(f"{self._paths.config.name} carries no hash")
            if wanted != running:
                self._reload(wanted)
                running = self._proxy.running_config()
        except agent_haproxy.ConfigRefused as error:
            return running, [Problem("ConfigRefused", str(error))]
        except (agent_haproxy.HAProxyError, OSError) as error:
            return None, [Problem("HAProxyUnreachable", str(error))]
        return running, []

    def _reload(self, wanted: str) -> None:
        now, last = self._clock(), self._refused
        if last and last.digest == wanted and now - last.at < REFUSED_AGAIN_SECONDS:
            raise agent_haproxy.ConfigRefused(last.reason)
        try:
            self._proxy.reload()
        except agent_haproxy.ConfigRefused as error:
            reason = f"the new config is refused, the old one is in force: {error}"
            self._refused = _Refusal(wanted, reason, now)
            log.error("%s", reason)
            raise agent_haproxy.ConfigRefused(reason) from error
        self._refused = None
        log.info("config %s is in force", wanted[:12])


def _severity(problem: Problem) -> tuple[int, str]:
    return get_args(agent_status.Reason).index(problem.reason), problem.text


def initialise(paths: Paths) -> None:
    """Write the first map, so that HAProxy can start."""
    keys = agent_keys.Keys({}) if paths.keys is None else agent_keys.read_keys(paths.keys)
    for error in keys.errors:
        log.error("API keys: %s", error)
    agent_keys.write_map(paths.key_map, keys.map_text)


def run(agent: Agent, board: agent_status.Board, wait: Callable[[float], bool]) -> None:
    """Step until `wait`, which is given the seconds until the next look, says to stop."""
    while True:
        board.write(agent.step())
        if wait(INTERVAL_SECONDS):
            return


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point of `rwkv-operator-agent`."""
    options = _parse(arguments)
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    paths = Paths(options.config, options.run, options.keys)
    if options.command == "init":
        initialise(paths)
        return 0
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    board = agent_status.Board(time.monotonic)
    server = agent_status.serve(board, ("", options.port))
    run(Agent(paths, paths.haproxy(), time.monotonic), board, stop.wait)
    server.shutdown()
    return 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="rwkv-operator-agent", description="Keeps HAProxy current."
    )
    parser.add_argument("command", choices=("init", "run"))
    parser.add_argument("--config", type=Path, required=True, help="HAProxy's config file")
    parser.add_argument("--run", type=Path, required=True, help="folder of the sockets and the map")
    parser.add_argument("--keys", type=Path, help="mounted Secret: a file per tenant")
    parser.add_argument("--port", type=int, default=names.PORT_AGENT, help="of /status")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
