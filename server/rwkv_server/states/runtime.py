"""What the API process has of states, made once: store, memory, events, turns.

Made by the layer when the server starts, or by the first request if the store was down then.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from dataclasses import dataclass

import httpx

from rwkv_server.model import config
from rwkv_server.states import chats
from rwkv_server.states.automatic import Automatic
from rwkv_server.states.environment import Environment, read_environment, read_key
from rwkv_server.states.errors import StateStoreUnavailable
from rwkv_server.states.events import EngineEvents
from rwkv_server.states.hot import HotTier
from rwkv_server.states.layout import StateLayout
from rwkv_server.states.loading import Loader
from rwkv_server.states.peers import Addresses, HttpPeers
from rwkv_server.states.prefixes import Prefixes
from rwkv_server.states.reuse import PrefixIndex
from rwkv_server.states.sessions import Sessions
from rwkv_server.states.slots import SlotError
from rwkv_server.states.store.opening import build_store
from rwkv_server.states.store.states import StateStore
from rwkv_server.states.turn import Identity
from rwkv_server.states.turns import Turns

ENGINE_KEY = "VLLM_API_KEY"
# Prefixes of one tenant that are known, for each snapshot that memory has room for.
INDEX_PER_SLOT = 2


@dataclass(frozen=True)
class Runtime:
    """The parts, for whoever answers requests.

    Attributes:
        key: that other engines and vLLM's own routes ask for.
        prefixes: what automatic reuse has; None where it is off.
        takes_tokens: whether this vLLM's chats take tokens in place of messages.
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
    key: str
    takes_tokens: bool
    client: httpx.AsyncClient

    async def close(self) -> None:
        """Give sockets and memory back."""
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
    return await make_runtime(environment, read_key(), os.environ[ENGINE_KEY], chats.take_tokens())


async def make_runtime(
    environment: Environment, signing: bytes, key: str, takes_tokens: bool
) -> Runtime:
    """As `start_runtime`.

    Args:
        environment: facts of the pod.
        signing: the key of what the connector is told.
        key: of the HTTP routes.
        takes_tokens: see `Runtime`.
    """
    state, ordinal = environment.state, environment.ordinal
    layout = read_layout(environment)
    deployment = f"{environment.namespace}/{environment.name}"
    store = build_store(state, deployment, ordinal, time.time, secrets.token_bytes)
    await store.open()
    try:
        hot = HotTier(environment.shm, layout, max(1, state.hot_bytes // layout.nbytes))
    except SlotError as error:
        raise StateStoreUnavailable(str(error)) from None
    events = EngineEvents(environment.socket, environment.ranks)
    await events.start()
    client = httpx.AsyncClient(trust_env=False)
    addresses = Addresses(state.peers.url_of, state.peers.ordinals, ordinal)
    peers = HttpPeers(addresses, key, client)
    loader = Loader(store, hot, layout, ordinal, peers)
    sessions = Sessions(store, peers, time.time)
    identity = Identity(
        ordinal=ordinal,
        fingerprint=environment.fingerprint,
        key=signing,
        placeholder=environment.placeholder,
        default_ttl_s=float(state.default_ttl_seconds),
    )
    prefixes, automatic = None, None
    if state.automatic_reuse != "Off":
        salt = environment.fingerprint.model_dump_json().encode()
        prefixes = Prefixes(PrefixIndex(salt, INDEX_PER_SLOT * hot.count), hot)
        automatic = Automatic(prefixes, hot, identity.placeholder)
    turns = Turns(
        identity,
        layout,
        store,
        hot,
        events,
        loader,
        sessions,
        time.time,
        secrets.token_bytes,
        automatic,
    )
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
        key=key,
        takes_tokens=takes_tokens,
        client=client,
    )


def read_layout(environment: Environment) -> StateLayout:
    """The layout of the model's snapshots."""
    raw = json.loads((environment.model / "config.json").read_text(encoding="utf-8"))
    return StateLayout.of(config.parse_config(raw), environment.dtype)
