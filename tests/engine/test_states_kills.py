"""A pod that is killed at random points while it saves: what it acknowledged is there and right."""

from __future__ import annotations

import itertools
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import engine_nursery
import httpx
import pytest

SAID = ["User: My name is Nora.\n\n", "Assistant:", " Hello", "\n\nUser: Who am I?\n\n", "ab"]
PROBE = "\n\nUser: What is my name?\n\nAssistant:"
READY_S = 300
LONG = 600  # characters after which a client opens its next session
CLIENTS = 3


@dataclass
class Session:
    """What one client knows of its session.

    Attributes:
        ref, text, turns: where the last acknowledged turn came to.
        asked: prompt and length of the turn that was not answered.
    """

    name: str
    ref: str | None = None
    text: str = ""
    turns: int = 0
    asked: tuple[str, int] | None = None


class Traffic:
    """Clients that save, fork and go on until the pod is gone; they note what was acknowledged."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._numbers = itertools.count()
        self.texts: dict[str, str] = {}
        self.order: list[str] = []
        self.sessions = [self._opened() for _ in range(CLIENTS)]

    def _opened(self) -> Session:
        return Session(f"s{next(self._numbers)}")

    def run(self, pod: engine_nursery.ForkedPod, count: int, seconds: float) -> None:
        """Let so many states be acknowledged and a moment go by; then kill the pod under them."""
        wanted = len(self.order) + count
        threads = [
            threading.Thread(target=self._talk, args=(pod, place, self._random.random()))
            for place in range(CLIENTS)
        ]
        for thread in threads:
            thread.start()
        while len(self.order) < wanted and any(thread.is_alive() for thread in threads):
            time.sleep(0.01)
        time.sleep(seconds)
        pod.stop()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()

    def _talk(self, pod: engine_nursery.ForkedPod, place: int, seed: float) -> None:
        random = Random(seed)
        with pod.client() as http:
            try:
                while True:
                    if random.random() < 0.4:
                        self._go_on(http, random, place)
                    else:
                        self._act(http, random)
            except httpx.HTTPError:
                return

    def _act(self, http: httpx.Client, random: Random) -> None:
        ref = random.choice(self.order) if self.order and random.random() < 0.7 else None
        if ref is not None and random.random() < 0.2:
            answer = http.post(f"/v1/states/{ref}/fork")
            if answer.status_code == 201:
                self.note(answer.json()["ref"], self.texts[ref])
            return
        prompt = random.choice(SAID)
        told = complete(http, prompt, random.randint(1, 12), {"ref": ref, "save": True})
        if told is not None:
            text, saved = told
            self.note(saved, (self.texts[ref] if ref else "") + prompt + text)

    def _go_on(self, http: httpx.Client, random: Random, place: int) -> None:
        session = self.sessions[place]
        if len(session.text) > LONG:
            session = self.sessions[place] = self._opened()
        session.asked = random.choice(SAID), random.randint(1, 12)
        prompt, length = session.asked
        wish = {"session": True if session.ref else "new", "save": True}
        told = complete(http, prompt, length, wish, session.name)
        if told is not None:
            self.went_on(session, told[1], session.text + prompt + told[0])

    def went_on(self, session: Session, ref: str, text: str) -> None:
        """A turn is part of its session."""
        session.ref, session.text, session.asked = ref, text, None
        session.turns += 1
        self.note(ref, text)

    def note(self, ref: str, text: str) -> None:
        """A state is acknowledged; its text first, for others choose from the order."""
        self.texts[ref] = text
        self.order.append(ref)


def complete(
    http: httpx.Client,
    prompt: str,
    length: int,
    state: dict[str, Any] | None = None,
    session: str | None = None,
) -> tuple[str, str] | None:
    """The text and the saved state's name, or None if the pod refuses because it ends."""
    wish = {} if state is None else {"state": {k: v for k, v in state.items() if v is not None}}
    body = {"model": "chat", "prompt": prompt, "max_tokens": length, "temperature": 0, **wish}
    headers = {} if session is None else {"x-session-id": session}
    answer = http.post("/v1/completions", json=body, headers=headers)
    if answer.status_code != 200:
        # Nobody else has a turn of this session, so no answer may say so.
        assert answer.status_code >= 500, answer.text
        return None
    told = answer.json()
    saved = (told.get("state") or {}).get("ref")
    if state is not None and state.get("save") and saved is None:
        return None
    return told["choices"][0]["text"], saved


def check(http: httpx.Client, traffic: Traffic, chosen: list[str]) -> None:
    """Every acknowledged state is there, and the chosen ones go on like their texts."""
    there, query = set(), {"limit": "100"}
    while True:
        page = http.get("/v1/states", params=query).json()
        there |= {state["ref"] for state in page["data"]}
        if not page["has_more"]:
            break
        query["after"] = page["last_id"]
    assert set(traffic.order) <= there
    for session in traffic.sessions:
        check_session(http, traffic, session)
    for ref in chosen:
        resumed = complete(http, PROBE, 8, {"ref": ref})
        whole = complete(http, traffic.texts[ref] + PROBE, 8)
        assert resumed is not None and whole is not None
        assert resumed[0] == whole[0], (ref, traffic.texts[ref])


def check_session(http: httpx.Client, traffic: Traffic, session: Session) -> None:
    """Its head is the last turn that was answered, or else the one under way, whole."""
    found = http.get(f"/v1/sessions/{session.name}")
    if found.status_code == 404:
        assert session.turns == 0
        return
    head = found.json()
    if head["turns"] != session.turns:
        assert session.asked is not None and head["turns"] == session.turns + 1
        assert http.get(f"/v1/states/{head['ref']}").json()["parent"] == session.ref
        prompt, length = session.asked
        text = session.text + prompt
        told = complete(http, text, length)
        assert told is not None
        traffic.went_on(session, head["ref"], text + told[0])
    assert (head["ref"], head["turns"]) == (session.ref, session.turns)
    probed = complete(http, PROBE, 8, {"session": True}, session.name)
    whole = complete(http, session.text + PROBE, 8)
    assert probed is not None and whole is not None
    assert probed[0] == whole[0], session
    traffic.went_on(session, probed[1], session.text + PROBE + probed[0])


def kill_often(
    nursery: engine_nursery.EngineNursery, folder: Path, model: Path, kills: int, seed: int
) -> None:
    """Start, check, talk and kill, so many times; one kill in five comes while the pod starts."""
    random, traffic, start_s = Random(seed), Traffic(seed), 0.0
    for number in range(kills + 1):
        started = time.monotonic()
        pod = nursery.pod(folder, model, state__store="persistentVolumeClaim")
        try:
            if 0 < number < kills and random.random() < 0.2:
                time.sleep(random.uniform(0, start_s))
                continue
            pod.wait_until_ready(READY_S)
            start_s = time.monotonic() - started
            with pod.client() as http:
                chosen = random.sample(traffic.order, min(3, len(traffic.order)))
                check(http, traffic, [*chosen, *traffic.order[-2:]])
            if number < kills:
                traffic.run(pod, random.randint(0, 12), random.uniform(0, 0.2))
        finally:
            pod.stop()
    assert len(traffic.order) > kills


def test_three_kills_lose_nothing(nursery, tiny_model, tmp_path):
    kill_often(nursery, tmp_path / "pod", tiny_model, kills=3, seed=7)


@pytest.mark.long
def test_two_hundred_kills_lose_nothing(nursery, tiny_model, tmp_path):
    kill_often(nursery, tmp_path / "pod", tiny_model, kills=200, seed=11)
