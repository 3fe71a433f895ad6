"""The store beside a plain model of it, over sequences of calls that nobody thought of."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from state_stores import Clock, make_record, memory, store_on, volume
from store_faults import PaperBlobs

from rwkv_server.states.errors import (
    SessionConflict,
    StateExists,
    StateExpired,
    StateNotFound,
)
from rwkv_server.states.store.blobs import Blobs
from rwkv_server.states.store.heads import Claim
from rwkv_server.states.store.sweep import GRACE_S

T = TypeVar("T")
TENANTS = st.sampled_from(["one", "two"])
REFS = st.sampled_from(["a", "b", "b.exp", "c"])
SESSIONS = st.sampled_from(["s", "t"])
CONTENTS = st.binary(max_size=40)


@dataclass
class Model:
    """What a tenant has, as a reader of the documentation would write it down."""

    content: dict[str, bytes] = field(default_factory=dict)
    session: dict[str, str | None] = field(default_factory=dict)
    expires: dict[str, float | None] = field(default_factory=dict)
    expired: set[str] = field(default_factory=set)
    heads: dict[str, str] = field(default_factory=dict)
    claims: dict[str, tuple[Claim, float]] = field(default_factory=dict)

    def lives(self, ref: str, now: float) -> bool:
        until = self.expires.get(ref)
        return ref in self.content and (until is None or now < until)

    def drop(self, ref: str) -> None:
        for part in (self.content, self.session, self.expires):
            part.pop(ref, None)
        self.expired.discard(ref)


class StoreMachine(RuleBasedStateMachine):
    """Every rule does one call on the store and the same on the model."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = Clock()
        self.lives = 0
        self.models = {"one": Model(), "two": Model()}

    def backend(self) -> Blobs:
        return PaperBlobs(clock=self.clock)

    @initialize()
    def start(self) -> None:
        self.blobs = self.backend()
        self.restart()

    def teardown(self) -> None:
        self.loop.close()

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(call)

    def refused(self, call: Coroutine[Any, Any, object], kind: type[Exception]) -> None:
        try:
            self.run(call)
        except kind:
            return
        raise AssertionError(f"it should have raised {kind.__name__}")

    @rule()
    def restart(self) -> None:
        self.lives += 1
        self.store = store_on(self.blobs, self.clock, seed=self.lives)
        for model in self.models.values():
            # Another process of the same engine: nobody waits for the turns of the one before.
            model.claims = {name: (claim, 0.0) for name, (claim, _) in model.claims.items()}

    @rule(seconds=st.sampled_from([1, 11, 200, 4000]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(
        tenant=TENANTS,
        ref=REFS,
        content=CONTENTS,
        ttl=st.none() | st.just(100.0),
        session=st.none() | SESSIONS,
    )
    def put(
        self, tenant: str, ref: str, content: bytes, ttl: float | None, session: str | None
    ) -> None:
        model, until = self.models[tenant], None if ttl is None else self.clock.now + ttl
        call = self.store.put(make_record(ref, tenant, session=session, expires_at=until), content)
        if ref in model.content:  # also one that has expired, until a sweep
            self.refused(call, StateExists)
            return
        model.drop(ref)
        self.run(call)
        model.content[ref], model.expires[ref], model.session[ref] = content, until, session

    @rule(tenant=TENANTS, ref=REFS)
    def get(self, tenant: str, ref: str) -> None:
        model = self.models[tenant]
        if not model.lives(ref, self.clock.now):
            self.refused(self.store.get(tenant, ref), self.why(tenant, ref))
            return
        record = self.run(self.store.get(tenant, ref))
        assert self.run(self.store.content(record)) == model.content[ref]
        assert record.expires_at == model.expires[ref]

    def why(self, tenant: str, ref: str) -> type[Exception]:
        model = self.models[tenant]
        known = ref in model.content or ref in model.expired
        return StateExpired if known else StateNotFound

    @rule(tenant=TENANTS, ref=REFS)
    def delete(self, tenant: str, ref: str) -> None:
        model = self.models[tenant]
        if ref not in model.content:
            self.refused(self.store.delete(tenant, ref), self.why(tenant, ref))
            return
        self.run(self.store.delete(tenant, ref))
        model.drop(ref)

    @rule(tenant=TENANTS, ref=REFS, ttl=st.none() | st.just(50.0))
    def touch(self, tenant: str, ref: str, ttl: float | None) -> None:
        model, until = self.models[tenant], None if ttl is None else self.clock.now + ttl
        call = self.store.touch(tenant, ref, until)
        if not model.lives(ref, self.clock.now):
            self.refused(call, self.why(tenant, ref))
            return
        assert self.run(call).expires_at == until
        model.expires[ref] = until

    @rule(tenant=TENANTS, session=SESSIONS)
    def claim(self, tenant: str, session: str) -> None:
        model = self.models[tenant]
        head = self.run(self.store.head(tenant, session))
        call = self.store.claim(tenant, session, head, self.clock.now + 60)
        claimed = model.claims.get(session)
        if claimed is not None and self.clock.now < claimed[1] + 6:
            self.refused(call, SessionConflict)
            return
        until = self.clock.now + 60
        model.claims[session] = (self.run(call), until)

    @rule(tenant=TENANTS, session=SESSIONS, ref=st.none() | REFS)
    def end(self, tenant: str, session: str, ref: str | None) -> None:
        model = self.models[tenant]
        claimed = model.claims.pop(session, None)
        if claimed is None:
            return
        self.run(self.store.end(claimed[0], ref))
        if ref is not None:
            model.heads[session] = ref

    @rule(tenant=TENANTS, session=SESSIONS)
    def forget_session(self, tenant: str, session: str) -> None:
        model = self.models[tenant]
        claimed = model.claims.get(session)
        call = self.store.forget_session(tenant, session)
        if session in model.heads and claimed is not None:
            if self.clock.now < claimed[1] + 6:
                self.refused(call, SessionConflict)
                return
            model.claims.pop(session)
        mine = [ref for ref, of in model.session.items() if of == session]
        assert self.run(call) == len(mine)
        for ref in mine:
            model.drop(ref)
        model.heads.pop(session, None)

    @rule()
    def sweep(self) -> None:
        now = self.clock.now
        self.run(self.store.sweep(now))
        for model in self.models.values():
            for ref, until in list(model.expires.items()):
                if until is not None and now >= until + GRACE_S:
                    model.drop(ref)
                    model.expired.add(ref)

    @rule(tenant=TENANTS, session=st.none() | SESSIONS, limit=st.integers(1, 3))
    def page(self, tenant: str, session: str | None, limit: int) -> None:
        model, seen, after = self.models[tenant], [], None
        while True:
            page = self.run(self.store.page(tenant, session, after, limit))
            seen += [record.ref for record in page.records]
            after = page.after
            if after is None:
                break
        wanted = {ref for ref in model.content if model.lives(ref, self.clock.now)}
        if session is not None:
            wanted = {ref for ref in wanted if model.session[ref] == session}
        assert len(seen) == len(set(seen)) and set(seen) == wanted

    @invariant()
    def heads_agree(self) -> None:
        for tenant, model in self.models.items():
            for session in ("s", "t"):
                head = self.run(self.store.head(tenant, session))
                assert (head.ref if head else None) == model.heads.get(session)


class VolumeMachine(StoreMachine):
    """The same on files."""

    def backend(self) -> Blobs:
        self.folder = tempfile.TemporaryDirectory()
        return volume(Path(self.folder.name))

    def teardown(self) -> None:
        super().teardown()
        self.folder.cleanup()


class MemoryMachine(StoreMachine):
    """The same through obstore."""

    def backend(self) -> Blobs:
        return memory()


TestPaper = StoreMachine.TestCase
TestVolume = VolumeMachine.TestCase
TestMemory = MemoryMachine.TestCase
TestPaper.settings = settings(max_examples=30, stateful_step_count=30, deadline=None)
TestVolume.settings = TestMemory.settings = settings(
    max_examples=8, stateful_step_count=30, deadline=None
)


@pytest.mark.long
class TestPaperLong(StoreMachine.TestCase):
    """The same with many more sequences."""

    settings = settings(max_examples=1500, stateful_step_count=60, deadline=None)
