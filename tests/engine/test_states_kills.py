"""A pod that is killed at random points while it saves: what it acknowledged is there and right."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from random import Random
from typing import Any

import httpx
import pytest
from server_process import ServerProcess

SAID = ["User: My name is Nora.\n\n", "Assistant:", " Hello", "\n\nUser: Who am I?\n\n", "ab"]
PROBE = "\n\nUser: What is my name?\n\nAssistant:"
READY_S = 300


class Traffic:
    """Clients that save, fork and go on until the pod is gone; they note what was acknowledged."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self.texts: dict[str, str] = {}
        self.order: list[str] = []

    def run(self, server: ServerProcess, clients: int, seconds: float) -> None:
        """Let them talk for a while, then kill the pod under them."""
        threads = [
            threading.Thread(target=self._talk, args=(server, self._random.random()))
            for _ in range(clients)
        ]
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        server.stop()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()

    def _talk(self, server: ServerProcess, seed: float) -> None:
        random = Random(seed)
        with server.client() as http:
            while True:
                try:
                    self._act(http, random)
                except httpx.HTTPError:
                    return

    def _act(self, http: httpx.Client, random: Random) -> None:
        ref = random.choice(self.order) if self.order and random.random() < 0.7 else None
        if ref is not None and random.random() < 0.2:
            answer = http.post(f"/v1/states/{ref}/fork")
            if answer.status_code == 201:
                self._note(answer.json()["ref"], self.texts[ref])
            return
        prompt = random.choice(SAID)
        told = complete(http, prompt, random.randint(1, 12), {"ref": ref, "save": True})
        if told is not None:
            text, saved = told
            self._note(saved, (self.texts[ref] if ref else "") + prompt + text)

    def _note(self, ref: str, text: str) -> None:
        self.texts[ref] = text
        self.order.append(ref)


def complete(
    http: httpx.Client, prompt: str, length: int, state: dict[str, Any] | None = None
) -> tuple[str, str] | None:
    """The text and the saved state's name, or None if the pod refuses because it ends."""
    wish = {} if state is None else {"state": {k: v for k, v in state.items() if v is not None}}
    body = {"model": "chat", "prompt": prompt, "max_tokens": length, "temperature": 0, **wish}
    answer = http.post("/v1/completions", json=body)
    if answer.status_code != 200:
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
    for ref in chosen:
        resumed = complete(http, PROBE, 8, {"ref": ref})
        whole = complete(http, traffic.texts[ref] + PROBE, 8)
        assert resumed is not None and whole is not None
        assert resumed[0] == whole[0], (ref, traffic.texts[ref])


def kill_often(model: Path, folder: Path, kills: int, seed: int) -> None:
    random, traffic = Random(seed), Traffic(seed)
    for number in range(kills + 1):
        server = ServerProcess(folder, model, state__store="persistentVolumeClaim")
        try:
            server.wait_until_ready(READY_S)
            with server.client() as http:
                chosen = random.sample(traffic.order, min(4, len(traffic.order)))
                check(http, traffic, [*chosen, *traffic.order[-3:]])
            if number < kills:
                acknowledged = len(traffic.order)
                traffic.run(server, clients=3, seconds=random.uniform(0.3, 2.0))
                assert len(traffic.order) > acknowledged or number > 0
        finally:
            server.stop()
    assert len(traffic.order) > 2 * kills


def test_three_kills_lose_nothing(tiny_model, tmp_path):
    kill_often(tiny_model, tmp_path / "pod", kills=3, seed=7)


@pytest.mark.long
def test_two_hundred_kills_lose_nothing(tiny_model, tmp_path):
    kill_often(tiny_model, tmp_path / "pod", kills=200, seed=11)
