"""The state API in this process over memory stores: several engines, tenants, an HTTP client."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import model_files
import numpy
import state_stores

from rwkv_server.states import content
from rwkv_server.states.exports import Limits
from rwkv_server.states.layout import StateLayout
from rwkv_server.states.memory import Memory
from rwkv_server.states.parts import Facts, New, Parts
from rwkv_server.states.peers import Addresses, HttpPeers
from rwkv_server.states.record import Record
from rwkv_server.states.saved import SavedStates
from rwkv_server.states.store.states import StateStore
from rwkv_server.states.web.app import build_app
from rwkv_server.web.gate import Gate

KEY = "internal"
LAYOUT = StateLayout.of(model_files.config(), "float32")
LIMITS = Limits(vocabulary=12, max_model_len=32)
DAY = 86400.0
BINARY = {"content-type": "application/octet-stream"}


class NoTier:
    """A memory tier that holds nothing, and notes what it is told to drop."""

    def __init__(self) -> None:
        self.dropped: list[str] = []

    def drop_all(self, prefix: str) -> None:
        self.dropped.append(prefix)


@dataclass
class Engine:
    """One engine's state API.

    Attributes:
        reading: (tenant, ref) of states that a turn reads now.
        down: whether it refuses connections.
    """

    store: StateStore
    saved: SavedStates
    tier: NoTier
    app: Any
    reading: set[tuple[str, str]] = field(default_factory=set)
    down: bool = False


@dataclass(frozen=True)
class FakePrefill:
    """Stands for the engine: each character is a token, and the snapshot is of their sum."""

    store: StateStore
    name: Callable[[New], str]
    clock: Callable[[], float]

    async def prefill(self, request: dict[str, Any], new: New) -> Record:
        text = request.get("text") or "".join(m["content"] for m in request["messages"])
        record = state_stores.make_record(
            self.name(new),
            new.tenant,
            session=new.session,
            consumed_tokens=len(text),
            pending=(),
            finish_reason="prompt",
            expires_at=self.clock() + (new.ttl_s or DAY),
        )
        return await self.store.put(record, snapshot(len(text)))


class Peering(httpx.AsyncBaseTransport):
    """Connections between the engines of a test."""

    def __init__(self, engines: list[Engine]) -> None:
        self._engines = engines

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        engine = self._engines[int(request.url.host.removeprefix("engine-"))]
        if engine.down:
            raise httpx.ConnectError("refused")
        transport = httpx.ASGITransport(engine.app, client=("10.0.0.9", 1))
        return await transport.handle_async_request(request)


def snapshot(seed: int) -> bytes:
    """A snapshot's file as the store has it, different for each seed."""
    values = numpy.random.default_rng(seed).standard_normal(LAYOUT.nbytes // 4).astype("f4")
    return content.to_safetensors(LAYOUT, memoryview(values.tobytes()), {})


async def _forget_nothing(tenant: str) -> None:
    """There are no prefixes."""


async def start(
    engines: int = 1, *, shared: bool = True, open_access: bool = False, quota: int | None = None
) -> list[Engine]:
    """Engines over one shared store in memory, or over one each."""
    clock = state_stores.Clock()
    blobs = state_stores.memory()
    made: list[Engine] = []
    client = httpx.AsyncClient(transport=Peering(made))
    for ordinal in range(engines):
        store = state_stores.store_on(
            blobs if shared else state_stores.memory(),
            clock,
            shared=shared,
            ordinal=ordinal,
            quota=quota,
            seed=ordinal,
        )
        await store.open()
        made.append(_engine(ordinal, engines, store, client, clock, open_access))
    return made


def _engine(
    ordinal: int,
    engines: int,
    store: StateStore,
    client: httpx.AsyncClient,
    clock: state_stores.Clock,
    open_access: bool,
) -> Engine:
    tier, reading = NoTier(), set[tuple[str, str]]()

    def reads(tenant: str, ref: str) -> bool:
        return (tenant, ref) in reading

    memory = Memory(tier, reads, _forget_nothing, lambda tenant: None)
    addresses = Addresses(lambda other: f"http://engine-{other}", engines, ordinal)
    facts = Facts(
        ordinal=ordinal,
        layout=LAYOUT,
        fingerprint=state_stores.FINGERPRINT,
        limits=LIMITS,
        default_ttl_s=DAY,
        max_bytes_per_tenant=1 << 30,
        open_access=open_access,
    )
    prefill = FakePrefill(store, lambda new: saved.name(new), clock)
    parts = Parts(store, memory, HttpPeers(addresses, KEY, client), prefill)
    saved = SavedStates(facts, parts, clock, state_stores.seeded(ordinal + 100))

    async def flush() -> dict[str, int]:
        await asyncio.sleep(0)
        return {"flushed": 0, "failed": 0, "onlyHere": 0}

    app = Gate(build_app(saved, flush), key=KEY)
    return Engine(store, saved, tier, app, reading)


def client(engine: Engine, tenant: str = "default", host: str = "10.0.0.5") -> httpx.AsyncClient:
    """What a router sends for a tenant."""
    headers = {"authorization": f"Bearer {KEY}", "x-rwkv-tenant": tenant}
    transport = httpx.ASGITransport(engine.app, client=(host, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://engine", headers=headers)


async def make(http: httpx.AsyncClient, text: str = "hello", **more: Any) -> dict[str, Any]:
    """A new state of a text."""
    answer = await http.post("/v1/states", json={"text": text, **more})
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def export(http: httpx.AsyncClient, ref: str) -> bytes:
    """A state's file."""
    answer = await http.get(f"/v1/states/{ref}/content")
    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) == len(answer.content)
    return answer.content


async def turn_pages(http: httpx.AsyncClient, limit: int) -> list[str]:
    """The refs of all states, in the order of pages of that many."""
    refs: list[str] = []
    query: dict[str, Any] = {"limit": limit}
    while True:
        page = (await http.get("/v1/states", params=query)).json()
        refs += [state["ref"] for state in page["data"]]
        if not page["has_more"]:
            return refs
        query["after"] = page["last_id"]


def error(answer: httpx.Response) -> tuple[int, str]:
    """An answer's status and its error's code."""
    return answer.status_code, answer.json()["error"]["code"]
