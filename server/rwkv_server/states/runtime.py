"""What the API process has of states, made once: store, memory, events, turns.

Made by the layer when the server starts, or by the first request if the store was down then.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import time
from dataclasses import dataclass

import httpx

from rwkv_server import vllm_chat_compat
from rwkv_server.model import config
from rwkv_server.states.automatic import Automatic
from rwkv_server.states.environment import Environment, read_environment, read_key
from rwkv_server.states.errors import StateStoreUnavailable
from rwkv_server.states.events import EngineEvents
from rwkv_server.states.hot import HotTier
from rwkv_server.states.keeper import Keeper
from rwkv_server.states.layout import StateLayout
from rwkv_server.states.loading import Loader
from rwkv_server.states.peers import Addresses, HttpPeers
from rwkv_server.states.prefixes import Prefixes
from rwkv_server.states.reuse import PrefixIndex
from rwkv_server.states.reuse_durable import Shelf, WriteBehind
from rwkv_server.states.sessions import Sessions
from rwkv_server.states.slots import SlotError
from rwkv_server.states.store.opening import build_store
from rwkv_server.states.store.states import StateStore
from rwkv_server.states.turn import Identity, Parts
from rwkv_server.states.turns import Turns
from rwkv_server.vllm_chat_compat import ChatRoutes

ENGINE_KEY = "VLLM_API_KEY"
# Prefixes of one tenant that are known, for each snapshot that memory has room for.
INDEX_PER_SLOT = 2


@dataclass(frozen=True)
class Keys:
    """Secrets of a pod: what the connector is told is signed with one, HTTP asks for the other."""

    connector: bytes
    http: str


@dataclass(frozen=True)
class Runtime:
    """The parts, for whoever answers requests.

    Attributes:
        key: that other engines and vLLM's own routes ask for.
        prefixes: what automatic reuse has; None where it is off.
        behind: writes that to the store; None where it stays in memory.
        chats: what this vLLM's routes for chats can.
    """

    environment: Environment
    layout: StateLayout
    store: StateStore
    hot: HotTier
    events: EngineEvents
    peers: HttpPeers
    loader: Loader
    sessions: Sessions
    turns: Turns
    prefixes: Prefixes | None
    behind: WriteBehind | None
    keeper: Keeper
    key: str
    chats: ChatRoutes
    client: httpx.AsyncClient

    async def close(self) -> None:
        """Give sockets and memory back."""
        await self.keeper.close()
        if self.behind is not None:
            await self.behind.close()
        await self.events.close()
        await self.client.aclose()
        self.hot.close()


async def start_runtime() -> Runtime | None:
    """All of it from the environment; None where the parent set no states up.

    Raises:
        StateStoreUnavailable: the store doesn't answer, or shared memory is too small.
    """
    environment = read_environment()
    if environment is None:
        return None
    keys = Keys(read_key(), os.environ[ENGINE_KEY])
    client = httpx.AsyncClient(trust_env=False)
    try:
        return await make_runtime(environment, keys, vllm_chat_compat.find_routes(), client)
    except BaseException:
        await client.aclose()
        raise


async def make_runtime(
    environment: Environment, keys: Keys, chats: ChatRoutes, client: httpx.AsyncClient
) -> Runtime:
    """As `start_runtime`.

    Args:
        environment: facts of the pod.
        keys: what things are signed with.
        chats: see `Runtime`.
        client: reaches other engines; closed with the runtime.
    """
    state, ordinal = environment.state, environment.ordinal
    layout = read_layout(environment)
    deployment = f"{environment.namespace}/{environment.name}"
    store = build_store(state, deployment, ordinal, time.time, secrets.token_bytes)
    await store.open()
    slots = max(1, state.hot_bytes // layout.nbytes)
    try:
        hot = await asyncio.to_thread(HotTier, environment.shm, layout, slots)
    except SlotError as error:
        raise StateStoreUnavailable(str(error)) from None
    events = EngineEvents(environment.socket, environment.ranks)
    try:
        await events.start()
    except OSError as error:
        hot.close()
        raise StateStoreUnavailable(f"{environment.socket}: {error.strerror}") from None
    addresses = Addresses(state.peers.url_of, state.peers.ordinals, ordinal)
    peers = HttpPeers(addresses, keys.http, client)
    loader = Loader(store, hot, layout, ordinal, peers)
    sessions = Sessions(store, peers, time.time)
    identity = Identity(
        ordinal=ordinal,
        fingerprint=environment.fingerprint,
        key=keys.connector,
        placeholder=environment.placeholder,
        default_ttl_s=float(state.default_ttl_seconds),
    )
    prefixes, automatic, behind = None, None, None
    if state.automatic_reuse != "Off":
        salt = environment.fingerprint.model_dump_json().encode()
        prefixes = Prefixes(PrefixIndex(salt, INDEX_PER_SLOT * hot.count), hot)
        automatic = Automatic(prefixes, hot, identity.placeholder)
        if state.automatic_reuse == "Durable":
            shelf = Shelf(store, hot, layout)
            behind = WriteBehind(shelf, prefixes, identity, time.time)
            automatic.fetch = behind.fetch
    parts = Parts(layout, store, hot, events, loader, sessions)
    turns = Turns(identity, parts, time.time, secrets.token_bytes, automatic)
    keeper = Keeper(store, addresses, time.time)
    keeper.start()
    return Runtime(
        environment=environment,
        layout=layout,
        store=store,
        hot=hot,
        events=events,
        peers=peers,
        loader=loader,
        sessions=sessions,
        turns=turns,
        prefixes=prefixes,
        behind=behind,
        keeper=keeper,
        key=keys.http,
        chats=chats,
        client=client,
    )


def read_layout(environment: Environment) -> StateLayout:
    """The layout of the model's snapshots."""
    raw = json.loads((environment.model / "config.json").read_text(encoding="utf-8"))
    return StateLayout.of(config.parse_config(raw), environment.dtype)
