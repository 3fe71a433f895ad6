"""Random histories of two tenants against a model of the API: every answer, and every text.

The model of a state is the tokens that it stands for. An answer from any other state shows, since
each token of it depends on all before.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import paper_engine
import paper_server
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rwkv_server.states.layout import StateLayout
from rwkv_server.states.runtime import read_layout

TENANTS = st.sampled_from(["ann", "bob"])
PROMPTS = st.sampled_from(["User: hi", " ab", "lo.\n\n", "x", "User: one more.\n"])
LENGTHS = st.integers(1, 6)
NAMES = st.sampled_from([True, "one", "two", "three"])
SESSIONS = st.sampled_from(["s", "t"])
STOPS = st.sampled_from([None, "e", "ab"])
SLOTS = 6


def expected(tokens: list[int], length: int, stop: str | None) -> tuple[str, list[int]]:
    """The text that the engine on paper goes on with, and its tokens."""
    state, output = paper_engine.read(tokens), []
    for _ in range(length):
        output.append(paper_engine.choose(state))
        state = paper_engine.step(state, output[-1])
        text = paper_engine.decode(output)
        if stop is not None and stop in text:
            kept = text[: text.index(stop)]
            return kept, output[: len(kept)]
    return paper_engine.decode(output), output


class Histories(RuleBasedStateMachine):
    """One pod, which may be started anew at any time, and what it should know."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.TemporaryDirectory()
        self.states: dict[tuple[str, str], list[int]] = {}
        self.sessions: dict[tuple[str, str], str] = {}
        self.of_session: dict[tuple[str, str], str] = {}
        self.start()

    def start(self) -> None:
        layout: StateLayout = read_layout(paper_engine.environment(Path(self.folder.name)))
        self.pod = paper_server.serve(
            Path(self.folder.name),
            store="persistentVolumeClaim",
            hotBytes=SLOTS * layout.nbytes,
        )
        self.server = self.run(self.pod.__aenter__())

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def teardown(self) -> None:
        with contextlib.closing(self.loop):
            self.run(self.pod.__aexit__(None, None, None))
        self.folder.cleanup()

    def ask(self, tenant: str, method: str, path: str, **more: Any) -> Any:
        headers = {"x-rwkv-tenant": tenant, **more.pop("headers", {})}
        return self.run(self.server.client.request(method, path, headers=headers, **more))

    def pick(self, data: Any) -> tuple[str, str]:
        return data.draw(st.sampled_from(list(self.states)))  # in the order they were made

    def keep(self, tenant: str, ref: str, tokens: list[int]) -> None:
        assert (tenant, ref) not in self.states
        self.states[tenant, ref] = tokens

    def generate(self, tenant: str, before: list[int], body: dict[str, Any], **more: Any) -> Any:
        """Complete, compare the text, and remember what was saved."""
        answer = self.ask(tenant, "POST", "/v1/completions", json=body, **more)
        assert answer.status_code == 200, answer.text
        tokens = before + paper_engine.encode(body["prompt"])
        text, output = expected(tokens, body["max_tokens"], body.get("stop"))
        told = answer.json()
        assert told["choices"][0]["text"] == text
        if told["state"]["ref"] is not None:
            self.keep(tenant, told["state"]["ref"], tokens + output)
        return told["state"]

    def taken(self, tenant: str, name: object) -> bool:
        return (tenant, name) in self.states

    @rule(tenant=TENANTS, prompt=PROMPTS, length=LENGTHS, name=NAMES, stop=STOPS)
    def begin(self, tenant: str, prompt: str, length: int, name: Any, stop: Any) -> None:
        body = {"prompt": prompt, "max_tokens": length, "stop": stop, "state": {"save": name}}
        if self.taken(tenant, name):
            answer = self.ask(tenant, "POST", "/v1/completions", json=body)
            assert answer.json()["error"]["code"] == "state_exists"
        else:
            state = self.generate(tenant, [], body)
            assert state["ref"] is not None and not state["resumed"]

    @precondition(lambda self: self.states)
    @rule(data=st.data(), prompt=PROMPTS, length=LENGTHS, save=st.booleans(), stop=STOPS)
    def go_on(self, data: Any, prompt: str, length: int, save: bool, stop: Any) -> None:
        tenant, ref = self.pick(data)
        wish = {"ref": ref, "save": save}
        body = {"prompt": prompt, "max_tokens": length, "stop": stop, "state": wish}
        state = self.generate(tenant, self.states[tenant, ref], body)
        assert (state["parent"], state["resumed"]) == (ref, True)
        assert (state["ref"] is not None) is save

    @precondition(lambda self: self.states)
    @rule(data=st.data(), name=NAMES)
    def fork(self, data: Any, name: Any) -> None:
        tenant, ref = self.pick(data)
        body = {} if name is True else {"name": name}
        answer = self.ask(tenant, "POST", f"/v1/states/{ref}/fork", json=body)
        if self.taken(tenant, name):
            assert answer.status_code == 409
        else:
            assert answer.status_code == 201
            self.keep(tenant, answer.json()["ref"], self.states[tenant, ref])

    @precondition(lambda self: self.states)
    @rule(data=st.data(), other=TENANTS)
    def move(self, data: Any, other: str) -> None:
        tenant, ref = self.pick(data)
        file = self.ask(tenant, "GET", f"/v1/states/{ref}/content").content
        raw = {"content-type": "application/octet-stream"}
        answer = self.ask(other, "POST", "/v1/states", content=file, headers=raw)
        assert answer.status_code == 201, answer.text
        self.keep(other, answer.json()["ref"], self.states[tenant, ref])

    @precondition(lambda self: self.states)
    @rule(data=st.data())
    def delete(self, data: Any) -> None:
        tenant, ref = self.pick(data)
        path = f"/v1/states/{ref}"
        assert self.ask(tenant, "DELETE", path).status_code == 200
        del self.states[tenant, ref]
        self.of_session.pop((tenant, ref), None)
        assert self.ask(tenant, "GET", path).status_code == 404

    @precondition(lambda self: self.states)
    @rule(data=st.data())
    def guess(self, data: Any) -> None:
        tenant, ref = self.pick(data)
        other = "bob" if tenant == "ann" else "ann"
        if (other, ref) not in self.states:
            assert self.ask(other, "GET", f"/v1/states/{ref}").status_code == 404
            body = {"prompt": "x", "max_tokens": 1, "state": {"ref": ref}}
            assert self.ask(other, "POST", "/v1/completions", json=body).status_code == 404

    @rule(tenant=TENANTS, session=SESSIONS, opens=st.booleans(), prompt=PROMPTS, length=LENGTHS)
    def turn(self, tenant: str, session: str, opens: bool, prompt: str, length: int) -> None:
        head = self.sessions.get((tenant, session))
        wish = {"session": "new" if opens else True}
        body = {"prompt": prompt, "max_tokens": length, "state": wish}
        header = {"x-session-id": session}
        if opens is (head is not None) or (head and (tenant, head) not in self.states):
            answer = self.ask(tenant, "POST", "/v1/completions", json=body, headers=header)
            assert answer.status_code == (409 if opens else 404), answer.text
            return
        before = self.states[tenant, head] if head else []
        ref = self.generate(tenant, before, body, headers=header)["ref"]
        self.sessions[tenant, session] = ref
        self.of_session[tenant, ref] = session

    @rule(tenant=TENANTS, session=SESSIONS)
    def forget(self, tenant: str, session: str) -> None:
        gone = [key for key, of in self.of_session.items() if key[0] == tenant and of == session]
        answer = self.ask(tenant, "DELETE", f"/v1/sessions/{session}")
        assert answer.status_code == 200, answer.text
        assert answer.json()["states"] == len(gone)
        self.drop(gone)
        self.sessions.pop((tenant, session), None)

    @rule(tenant=TENANTS)
    def erase(self, tenant: str) -> None:
        gone = [key for key in self.states if key[0] == tenant]
        answer = self.ask(tenant, "DELETE", "/v1/states?all=true")
        assert answer.status_code == 200, answer.text
        assert answer.json()["states"] == len(gone)
        self.drop(gone)
        self.sessions = {key: ref for key, ref in self.sessions.items() if key[0] != tenant}

    @rule()
    def restart(self) -> None:
        self.run(self.pod.__aexit__(None, None, None))
        self.start()

    def drop(self, gone: list[tuple[str, str]]) -> None:
        for key in gone:
            del self.states[key]
            self.of_session.pop(key, None)

    @invariant()
    def what_is_listed_is_what_there_is(self) -> None:
        for tenant in ("ann", "bob"):
            page = self.ask(tenant, "GET", "/v1/states?limit=100").json()
            counts = {s["ref"]: s["consumed_tokens"] + s["pending_tokens"] for s in page["data"]}
            wanted = {ref: len(t) for (whose, ref), t in self.states.items() if whose == tenant}
            assert counts == wanted

    @invariant()
    def nothing_stays_pinned(self) -> None:
        assert self.server.runtime.hot.use.pinned == 0


OPTIONS = settings(
    stateful_step_count=20,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.generate, Phase.shrink],
)


class TestHistories(Histories.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(OPTIONS, max_examples=4, derandomize=True)


@pytest.mark.long
class TestManyHistories(Histories.TestCase):  # type: ignore[name-defined,misc]
    settings = settings(OPTIONS, max_examples=300, stateful_step_count=50)
