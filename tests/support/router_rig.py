"""Real routers on loopback: HAProxy with the rendered config, a DNS server and stub engines.

The config is the one that the operator renders, with other ports, paths and name server, because
several routers share this machine; each replacement must find its text.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

import haproxy_program
import httpx
from stub_dns import StubDNS
from stub_engine import StubEngine

from rwkv_cluster.ports import free_ports
from rwkv_operator import agent_keys, names
from rwkv_operator.api import model, spec, stack
from rwkv_operator.manifests import haproxy
from rwkv_operator.manifests.context import Context

T = TypeVar("T")
Answer = httpx.Response

KEYS = {"alice": b"key-of-alice", "bob": b"key-of-bob"}
CONTEXT = Context(
    stack=stack.Stack("cpu", "0", 1, "cpu", "engine-image"),
    operator_image="operator-image",
    router_image="router-image",
    operator_namespace="rwkv-system",
    operator_labels={},
)


def deployment(**fields: Any) -> spec.Deployment:
    """A deployment `chat` in `default` with some fields of its spec."""
    whole = {
        "model": model.Model(model.BundledSource("tiny-recall"), "chat"),
        "hardware": spec.Hardware("cpu"),
        "replicas": 3,
        "routing": spec.Routing(max_engine_replicas=4),
        **fields,
    }
    return spec.Deployment("default", "chat", "0", 1, spec.Spec(**whole))


def eventually(check: Callable[[], T], seconds: float = 15.0) -> T:
    """The first true value of a check; fails with the last one."""
    end = time.monotonic() + seconds
    while not (value := check()):
        assert time.monotonic() < end, f"still {value!r} after {seconds} s"
        time.sleep(0.05)
    return value


class Router:
    """One HAProxy in master-worker mode, with its own ports and sockets."""

    def __init__(self, rig: Rig, dep: spec.Deployment) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="rwkv-router-"))
        self.port, self.ops_port = free_ports(2)
        self.config = self.folder / "haproxy.cfg"
        self.log = self.folder / "log"
        self._rig = rig
        self.write_config(dep)
        agent_keys.write_map(self.folder / "keys.map", agent_keys.parse_keys(KEYS).map_text)
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where clients go."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def ops_url(self) -> str:
        """Where the kubelet goes."""
        return f"http://127.0.0.1:{self.ops_port}"

    def write_config(self, dep: spec.Deployment) -> str:
        """Render the config for this machine; returns its hash."""
        text = self._rig.adapt(haproxy.render(dep, CONTEXT), self)
        self.config.write_text(text)
        digest = haproxy.config_hash(text)
        assert digest is not None
        return digest

    def start(self) -> None:
        """Start HAProxy and wait for its ops port."""
        command = [str(self._rig.program), "-W", "-db", "-S", f"{self.folder}/master.sock,mode,660"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "-f", str(self.config)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "RWKV_INTERNAL_KEY": "internal"},
            )
        eventually(lambda: self._rig.get(f"{self.ops_url}/livez") is not None)

    def soft_stop(self) -> None:
        """What the kubelet sends first."""
        assert self.process is not None
        self.process.send_signal(signal.SIGUSR1)

    def stop(self) -> None:
        """End HAProxy and forget its files."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)

    def engines_seen(self) -> int:
        """How many engines the router would use."""
        answer = self._rig.get(f"{self.ops_url}/readyz")
        return 0 if answer is None else int(answer.json()["engines"])

    def sees(self, engines: int) -> bool:
        """Whether the router would use that many engines."""
        return self.engines_seen() == engines

    def logged(self) -> list[dict[str, Any]]:
        """The log lines of requests until now; each is written after its answer."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def log_line(self, answer: httpx.Response) -> dict[str, Any]:
        """The log line of one request."""
        request_id = answer.headers["x-request-id"]

        def find() -> dict[str, Any] | None:
            return next((line for line in self.logged() if line["rid"] == request_id), None)

        line = eventually(find)
        assert line is not None
        return line


class Rig:
    """Engines, DNS and routers, all of which go away at the end."""

    def __init__(self, dep: spec.Deployment, engines: int = 3, routers: int = 2) -> None:
        self.dep = dep
        self.program = haproxy_program.find()
        self.dns = StubDNS()
        self.dns_port, self.engine_port, self.engine_ops_port = free_ports(3)
        self.engines = [self.new_engine(ordinal) for ordinal in range(engines)]
        self.routers = [Router(self, dep) for _ in range(routers)]
        self.client = httpx.Client(trust_env=False, timeout=30)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        self.call(self.dns.start("127.0.0.1", self.dns_port))
        for ordinal, engine in enumerate(self.engines):
            self.call(engine.start())
            self.name_engine(ordinal)
        for router in self.routers:
            router.start()
        self.wait_for_engines(len(self.engines))

    def __exit__(self, *exception: object) -> None:
        self.client.close()
        for router in self.routers:
            router.stop()
        for engine in self.engines:
            self.call(engine.stop())
        self._loop.call_soon_threadsafe(self.dns.stop)
        self.call(_end_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def ask(self, router: int = 0, path: str = "/v1/chat/completions", **request: Any) -> Answer:
        """Send a request of alice's to one router; a POST where it has a body."""
        headers = {"authorization": "Bearer key-of-alice", **request.pop("headers", {})}
        method = request.pop("method", "POST" if {"json", "content"} & set(request) else "GET")
        url = f"{self.routers[router].url}{path}"
        return self.client.request(method, url, headers=headers, **request)

    def home(self, router: int = 0, **request: Any) -> str:
        """The engine that has answered a request."""
        answer = self.ask(router, **request)
        assert answer.status_code == 200, answer.text
        return answer.headers["x-rwkv-pod"]

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something on the loop of the stubs."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    def get(self, url: str) -> httpx.Response | None:
        """An answer, or None while there is none."""
        try:
            return self.client.get(url)
        except httpx.TransportError:
            return None

    def wait_for_engines(self, count: int) -> None:
        """Until every router uses that many engines."""
        for router in self.routers:
            eventually(functools.partial(router.sees, count))

    def name_engine(self, ordinal: int) -> None:
        """Let DNS know where an engine is."""
        host = names.engine_host("chat", "default", ordinal, "cluster.local")
        self.dns.addresses[host] = self.engines[ordinal].host

    def kill_engine(self, ordinal: int) -> None:
        """As if its pod was deleted by force: connections reset, no name any more."""
        host = names.engine_host("chat", "default", ordinal, "cluster.local")
        self.dns.addresses.pop(host)
        self.call(self.engines[ordinal].stop())

    def revive_engine(self, ordinal: int) -> None:
        """As if its pod came back, with another address."""
        engine = self.engines[ordinal]
        engine.host = f"127.78.0.{ordinal + 1}"
        self.call(engine.start())
        self.name_engine(ordinal)

    def adapt(self, config: str, router: Router) -> str:
        """The rendered config with this machine's ports and paths."""
        for old, new in {
            "bind :8080": f"bind 127.0.0.1:{router.port}",
            "bind :8404": f"bind 127.0.0.1:{router.ops_port}",
            "check port 8001": f"check port {self.engine_ops_port}",
            ".cluster.local:8000": f".cluster.local:{self.engine_port}",
            "parse-resolv-conf": f"nameserver stub 127.0.0.1:{self.dns_port}",
            haproxy.RUN_PATH: str(router.folder),
        }.items():
            assert old in config, f"{old} is not in the config"
            config = config.replace(old, new)
        return config

    def new_engine(self, ordinal: int) -> StubEngine:
        """An engine that isn't started yet; append it to `engines` and name it."""
        name = names.engine_pod("chat", ordinal)
        return StubEngine(name, f"127.77.0.{ordinal + 1}", self.engine_port, self.engine_ops_port)


async def _end_others() -> None:
    """End what the stubs have started, so that nothing is left open when the loop closes."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    # A closed transport tells its protocol in a later turn of the loop.
    await asyncio.sleep(0.05)
