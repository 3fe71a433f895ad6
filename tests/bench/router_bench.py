"""What a router costs: CPU per request and added latency, beside simpler ways to the same engine.

Everything is on loopback: HAProxy with the rendered config and one with the least that can hash a
header, two stub engines in processes of their own, and clients that send one request after the
other over kept-alive connections. Runs are interleaved, so that a busy machine is busy for all.
"""

from __future__ import annotations

import contextlib
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / part) for part in ("support", "cluster", "../operator", "bench")]

import results  # noqa: E402
from router_rig import Rig, Router, deployment, eventually  # noqa: E402

RUNS = 7
CLIENTS = 8
REQUESTS = 200
"""Of one client in one run."""

LATENCY_REQUESTS = 300
CHAT = {"model": "chat", "messages": [{"role": "user", "content": "Hello, how are you today?"}]}
MINIMAL = """global
    maxconn 4096
    nbthread 2
defaults
    mode http
    timeout connect 1s
    timeout client 300s
    timeout server 300s
frontend api
    bind 127.0.0.1:{port}
    default_backend sticky
backend sticky
    balance hash req.hdr(x-session-id)
    hash-type consistent sdbm avalanche
    http-reuse never
    option httpchk GET /readyz
    default-server check port {ops} inter 1s hash-key id weight 100
{servers}
frontend ops
    bind 127.0.0.1:{own_ops}
    http-request return status 200 content-type application/json \
lf-string '{{"engines":%[nbsrv(sticky)]}}'
"""


@dataclass(frozen=True)
class Way:
    """One way of a request to an engine: where to send what."""

    name: str
    address: tuple[str, int]
    router: Router | None
    requests: tuple[bytes, ...]


def request(fields: dict[str, object], headers: str = "", key: str = "key-of-alice") -> bytes:
    """A chat request as it goes over the wire."""
    body = json.dumps({**CHAT, **fields}).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {key}\r\n{headers}content-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def variants(make: Callable[[int], bytes]) -> tuple[bytes, ...]:
    """The same request of 64 sessions."""
    return tuple(make(number) for number in range(64))


def exchange(connection: socket.socket, message: bytes) -> None:
    """Send a request and read the whole answer."""
    connection.sendall(message)
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += connection.recv(65536)
    head, _, body = answer.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"not an answer to measure: {answer[:200]!r}")
    fields = head.lower().split(b"content-length: ")
    left = int(fields[1].split(b"\r\n")[0]) - len(body)
    while left > 0:
        left -= len(connection.recv(65536))


def send_many(way: Way, client: int) -> None:
    """One client's requests of one run."""
    with connect(way) as connection:
        for index in range(REQUESTS):
            exchange(connection, way.requests[(client * REQUESTS + index) % len(way.requests)])


def connect(way: Way) -> socket.socket:
    """A connection on which nothing waits for more."""
    connection = socket.create_connection(way.address, timeout=30)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def cpu_us_per_request(way: Way, pool: ThreadPoolExecutor) -> float:
    """CPU time of HAProxy's worker for one request, in µs."""
    assert way.router is not None
    before = cpu_ns(way.router)
    list(pool.map(lambda client: send_many(way, client), range(CLIENTS)))
    return (cpu_ns(way.router) - before) / (CLIENTS * REQUESTS) / 1000


def cpu_ns(router: Router) -> int:
    """CPU time of all threads of a router's worker until now."""
    assert router.process is not None
    master = router.process.pid
    (worker,) = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    tasks = Path(f"/proc/{worker}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)


def latency_us(way: Way) -> float:
    """Median time of one request while nothing else goes on, in µs."""
    times = []
    with connect(way) as connection:
        for index in range(LATENCY_REQUESTS):
            start = time.perf_counter_ns()
            exchange(connection, way.requests[index % len(way.requests)])
            times.append(time.perf_counter_ns() - start)
    return statistics.median(times) / 1000


@contextlib.contextmanager
def engines(rig: Rig) -> Iterator[None]:
    """Two stub engines, each in a process of its own."""
    started = []
    try:
        for ordinal in range(2):
            engine = rig.new_engine(ordinal)
            command = [sys.executable, str(TESTS / "support" / "stub_engine.py")]
            command += ["--host", engine.host, "--port", str(engine.port)]
            started.append(subprocess.Popen([*command, "--ops-port", str(engine.ops_port)]))
            rig.engines.append(engine)
            rig.name_engine(ordinal)
        yield
    finally:
        for process in started:
            process.terminate()
            process.wait()


def minimal_router(rig: Rig) -> Router:
    """A HAProxy that hashes one header and does nothing else."""
    router = Router(rig, rig.dep)
    servers = "\n".join(
        f"    server {engine.name} {engine.host}:{engine.port} id {ordinal + 1}"
        for ordinal, engine in enumerate(rig.engines)
    )
    router.config.write_text(
        MINIMAL.format(
            port=router.port,
            ops=rig.engine_ops_port,
            own_ops=router.ops_port,
            servers=servers,
        )
    )
    return router


def ways(rig: Rig, full: Router, minimal: Router) -> dict[str, Way]:
    """All that is compared."""
    full_at, minimal_at = ("127.0.0.1", full.port), ("127.0.0.1", minimal.port)
    engine = (rig.engines[0].host, rig.engines[0].port)
    long = "x" * 20_000
    return {
        way.name: way
        for way in (
            Way("direct", engine, None, variants(lambda _: request({}, key="internal"))),
            Way(
                "minimal",
                minimal_at,
                minimal,
                variants(lambda n: request({}, f"x-session-id: s{n}\r\n", "internal")),
            ),
            Way(
                "header", full_at, full, variants(lambda n: request({}, f"x-session-id: s{n}\r\n"))
            ),
            Way("full", full_at, full, variants(lambda n: request({"session_id": f"s{n}"}))),
            Way(
                "first_message",
                full_at,
                full,
                variants(
                    lambda n: request({"messages": [{"role": "user", "content": f"topic {n}"}]})
                ),
            ),
            Way(
                "escaped_message",
                full_at,
                full,
                variants(
                    lambda n: request({"messages": [{"role": "user", "content": f"你好 {n}"}]})
                ),
            ),
            Way(
                "body_20kb",
                full_at,
                full,
                variants(lambda n: request({"prompt": long, "session_id": f"s{n}"})),
            ),
        )
    }


def measure(table: dict[str, Way]) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """All ways, one after the other, several times."""
    cpu: dict[str, list[float]] = {name: [] for name, way in table.items() if way.router}
    latency: dict[str, list[float]] = {name: [] for name in ("direct", "minimal", "full")}
    with ThreadPoolExecutor(CLIENTS) as pool:
        for name in cpu:
            cpu_us_per_request(table[name], pool)
        for run in range(RUNS):
            for name, values in cpu.items():
                values.append(cpu_us_per_request(table[name], pool))
            for name, values in latency.items():
                values.append(latency_us(table[name]))
            print(f"router: run {run + 1} of {RUNS}", flush=True)
    return cpu, latency


def rows(cpu: dict[str, list[float]], latency: dict[str, list[float]]) -> list[results.Row]:
    """The file's rows."""
    minimal = statistics.median(cpu["minimal"])
    made = [
        row(f"cpu_us_per_request/{name}", values, "µs", "HAProxy hashing one header", minimal)
        for name, values in cpu.items()
        if name != "minimal"
    ]
    direct = statistics.median(latency["direct"])
    made += [
        row(f"latency_p50/{name}", latency[name], "µs", "no router", direct)
        for name in ("minimal", "full")
    ]
    added = [
        routed - alone for routed, alone in zip(latency["full"], latency["direct"], strict=True)
    ]
    return [*made, row("added_latency_p50/full", added, "µs")]


def row(
    name: str, values: list[float], unit: str, peer: str | None = None, other: float | None = None
) -> results.Row:
    """Median and spread of the runs."""
    middle = statistics.median(values)
    return results.Row(
        name=name,
        value=round(middle, 1),
        unit=unit,
        better="lower",
        runs=len(values),
        spread=round((max(values) - min(values)) / middle, 2),
        peer=peer,
        peer_value=None if other is None else round(other, 1),
    )


def main() -> None:
    """Measure and write build/bench/router.json."""
    with Rig(deployment(), engines=0, routers=1) as rig, engines(rig):
        full, minimal = rig.routers[0], minimal_router(rig)
        rig.routers.append(minimal)
        minimal.start()
        for router in rig.routers:
            eventually(lambda router=router: router.sees(2))
        cpu, latency = measure(ways(rig, full, minimal))
        rig.engines.clear()
    made = rows(cpu, latency)
    for each in made:
        print(f"{each.name:40} {each.value:8} {each.unit}  spread {each.spread}")
    print(results.write("router", made, ["make bench-router"]))


if __name__ == "__main__":
    main()
