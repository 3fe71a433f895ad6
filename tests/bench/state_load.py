"""Requests of the state bench: what a client of a served engine sees, in ms and tokens."""

from __future__ import annotations

import asyncio
import json
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from server_process import KEY, ServerProcess

VOCABULARY = 60_000
WORDS = "the river town had a small market where people sold bread wool and stories of".split()


def tokens(count: int, seed: int) -> list[int]:
    """Tokens that nobody has sent before."""
    chance = random.Random(seed)
    return [chance.randrange(300, VOCABULARY) for _ in range(count)]


class Client:
    """One connection to a server."""

    def __init__(self, server: ServerProcess) -> None:
        """Connect to it."""
        self._http = server.client()

    def complete(self, prompt: list[int], **fields: Any) -> tuple[float, dict[str, Any]]:
        """One token after a prompt: how long it took in ms, and the answer."""
        body = {"model": "chat", "prompt": prompt, "max_tokens": 1, "temperature": 0, **fields}
        start = time.perf_counter()
        answer = self._http.post("/v1/completions", json=body)
        spent = time.perf_counter() - start
        answer.raise_for_status()
        return spent * 1e3, answer.json()

    def chat(self, messages: list[dict[str, str]], **fields: Any) -> tuple[float, str, Any]:
        """A streamed chat: ms to the first words, the words, and the usage."""
        body = {
            "model": "chat",
            "messages": messages,
            "max_tokens": 20,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **fields,
        }
        first, text, usage = 0.0, "", None
        start = time.perf_counter()
        with self._http.stream("POST", "/v1/chat/completions", json=body) as answer:
            answer.raise_for_status()
            for chunk in chunks(answer.iter_lines()):
                said = "".join(c["delta"].get("content") or "" for c in chunk["choices"])
                first = first or (time.perf_counter() if said else 0.0)
                text += said
                usage = chunk.get("usage") or usage
        return (first - start) * 1e3, text, usage


def chunks(lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The chunks of a stream."""
    for line in lines:
        data = line.removeprefix("data: ")
        if line and data != "[DONE]":
            yield json.loads(data)


def throughput(server: ServerProcess, fields: dict[str, Any], seed: int) -> float:
    """Tokens a second of 64 requests at once, 64 tokens in and 128 out."""
    return asyncio.run(_throughput(server, fields, seed))


async def _throughput(server: ServerProcess, fields: dict[str, Any], seed: int) -> float:
    headers = {"authorization": f"Bearer {KEY}"}
    limits = httpx.Limits(max_connections=64)
    async with httpx.AsyncClient(
        base_url=server.url, headers=headers, timeout=300, trust_env=False, limits=limits
    ) as client:

        async def one(number: int) -> int:
            prompt = tokens(64, seed * 1000 + number)
            body = {"model": "chat", "prompt": prompt, "max_tokens": 128, "ignore_eos": True}
            answer = await client.post("/v1/completions", json={**body, "temperature": 0, **fields})
            answer.raise_for_status()
            saved = (answer.json().get("state") or {}).get("ref")
            if fields and not saved:
                raise RuntimeError(f"not saved: {answer.json().get('state')}")
            return int(answer.json()["usage"]["completion_tokens"])

        start = time.perf_counter()
        made = sum(await asyncio.gather(*(one(number) for number in range(64))))
        return made / (time.perf_counter() - start)


def sync_files(folder: Path, count: int, nbytes: int) -> float:
    """ms that a disk takes to write and sync so many files, from eight threads."""
    content = random.Random(0).randbytes(nbytes)

    def write(number: int) -> None:
        with (folder / f"alone-{number}").open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    start = time.perf_counter()
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(count)))
    spent = time.perf_counter() - start
    for number in range(count):
        (folder / f"alone-{number}").unlink()
    return spent * 1e3


def talk(
    ask: Callable[[list[dict[str, str]]], tuple[float, str, Any]], turns: int, seed: int
) -> Iterator[tuple[float, Any]]:
    """A stock client's chat of turns with about 60 tokens, all of it resent each time."""
    chance, messages = random.Random(seed), []
    for _ in range(turns):
        said = " ".join(chance.choices(WORDS, k=34))
        messages.append({"role": "user", "content": said})
        first, text, usage = ask(list(messages))
        messages.append({"role": "assistant", "content": text})
        yield first, usage


def spread(values: list[float]) -> float:
    """(maximum - minimum) / median."""
    return (max(values) - min(values)) / statistics.median(values)
