"""Engines of a shared store take turns of one session at once: none is lost, none is two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import state_racer
from state_stores import Clock, store_on

ENGINES = 4
TURNS = 20


def race(where: str) -> list[dict[str, Any]]:
    """What all of them say."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    commands = [
        [sys.executable, state_racer.__file__, where, str(TURNS), str(ordinal)]
        for ordinal in range(ENGINES)
    ]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    racers = [subprocess.Popen(command, env=environment, **pipes) for command in commands]
    assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * ENGINES
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    said = [racer.communicate(timeout=120)[0] for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * ENGINES
    return [json.loads(line) for text in said for line in text.splitlines()]


@pytest.mark.parametrize("kind", ["volume", "s3"])
async def test_turns_are_a_chain(kind: str, server: Any, tmp_path: Path) -> None:
    settings = server.settings("races").model_dump_json(by_alias=True)
    where = str(tmp_path) if kind == "volume" else settings
    said = race(where)
    turns = {turn["ref"]: turn["parent"] for turn in said if "ref" in turn}
    assert sum(turn.get("conflicts", 0) for turn in said) > 0, "they didn't race"
    store = store_on(state_racer.backend(where), Clock())
    head = await store.head("default", "s")
    assert head is not None and head.turn == len(turns) == TURNS
    seen, ref = [], head.ref
    while ref is not None:
        seen.append(ref)
        ref = (await store.get("default", ref)).parent
        assert ref is None or turns[seen[-1]] == ref
    assert len(seen) == len(set(seen)) and set(seen) == set(turns)
