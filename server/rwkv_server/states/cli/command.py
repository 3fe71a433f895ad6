"""The commands: what they ask, what they print and how they end."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from rwkv_server.states.cli import render
from rwkv_server.states.cli.arguments import ENDPOINT, KEY
from rwkv_server.states.cli.client import ApiError, StatesClient, path_of

REFUSED, USAGE, UNREACHABLE = 1, 64, 69
TIMEOUT_S = 120.0

Print = Callable[[str], None]


@dataclass(frozen=True)
class Setting:
    """What a command runs with."""

    client: StatesClient
    out: Print
    clock: Callable[[], float]


def run(options: argparse.Namespace, clock: Callable[[], float]) -> int:
    """Run one command against the endpoint; returns the exit code."""
    endpoint = options.endpoint or os.environ.get(ENDPOINT)
    if not endpoint:
        return _fail(f"no endpoint: use --endpoint or set {ENDPOINT}", USAGE)
    return asyncio.run(_run(options, endpoint, os.environ.get(KEY, ""), clock))


async def _run(
    options: argparse.Namespace, endpoint: str, key: str, clock: Callable[[], float]
) -> int:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        client = httpx.AsyncClient(base_url=endpoint, headers=headers, timeout=TIMEOUT_S)
    except (httpx.InvalidURL, ValueError) as error:
        return _fail(f"{endpoint} is no endpoint: {error}", USAGE)
    async with client as http:
        return await execute(options, Setting(StatesClient(http), print, clock))


async def execute(options: argparse.Namespace, setting: Setting) -> int:
    """Run a parsed command; what goes wrong becomes a line on standard error and an exit code."""
    try:
        await COMMANDS[options.work](options, setting)
    except ApiError as error:
        return _fail(str(error), REFUSED)
    except httpx.HTTPError as error:
        return _fail(f"the endpoint can't be reached: {error or type(error).__name__}", UNREACHABLE)
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}", REFUSED)
    return 0


async def _list(options: argparse.Namespace, setting: Setting) -> None:
    states = await setting.client.states(options.session)
    if options.json:
        setting.out(json.dumps(states, indent=2))
    else:
        setting.out(render.render_table(states, setting.clock()))


async def _show(options: argparse.Namespace, setting: Setting) -> None:
    found = await setting.client.ask("GET", path_of(options.ref))
    setting.out(json.dumps(found, indent=2))


async def _export(options: argparse.Namespace, setting: Setting) -> None:
    size, whole = 0, False
    file: Path = options.file
    with file.open("xb") as target:
        try:
            async for part in setting.client.content(options.ref):
                size += target.write(part)
            whole = True
        finally:
            if not whole:
                file.unlink()
    setting.out(f"{file}: {size} bytes of state {options.ref}")


async def _import(options: argparse.Namespace, setting: Setting) -> None:
    content = await asyncio.to_thread(options.file.read_bytes)
    query = _given({"name": options.name, "ttl_s": options.ttl})
    kind = {"content-type": "application/octet-stream"}
    made = await setting.client.ask(
        "POST", "/v1/states", content=content, params=query, headers=kind
    )
    setting.out(made["ref"])


async def _fork(options: argparse.Namespace, setting: Setting) -> None:
    body = _given({"name": options.name, "ttl_s": options.ttl})
    made = await setting.client.ask("POST", f"{path_of(options.ref)}/fork", json=body)
    setting.out(made["ref"])


async def _remove(options: argparse.Namespace, setting: Setting) -> None:
    for ref in options.refs:
        await setting.client.ask("DELETE", path_of(ref))
        setting.out(f"{ref} is deleted")


async def _tree(options: argparse.Namespace, setting: Setting) -> None:
    setting.out(render.render_trees(await setting.client.states(), options.session))


async def _forget(options: argparse.Namespace, setting: Setting) -> None:
    query = {"all": "true"} if options.all else {"session": options.session}
    erased = await setting.client.ask("DELETE", "/v1/states", params=query)
    what = "everything" if options.all else f"session {options.session}"
    setting.out(f"{what} is erased: {erased['states']} states")


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _fail(message: str, code: int) -> int:
    print(f"rwkv-server state: {message}", file=sys.stderr, flush=True)
    return code


COMMANDS: dict[str, Callable[[argparse.Namespace, Setting], Awaitable[None]]] = {
    "ls": _list,
    "show": _show,
    "export": _export,
    "import": _import,
    "fork": _fork,
    "rm": _remove,
    "tree": _tree,
    "forget": _forget,
}
