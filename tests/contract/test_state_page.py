"""docs/state-api.md names every route, every error and every command."""

from __future__ import annotations

import argparse
import os
import re
from pathlib import Path

from rwkv_server.states.cli import arguments
from rwkv_server.states.errors import StateError
from rwkv_server.web import routes

PAGE = Path(__file__).resolve().parents[2] / "docs" / "state-api.md"
HEAD = "| status | code | meaning |\n|---|---|---|\n"
NOT_FOR_CLIENTS = ("/internal/", "/openapi.json")


def test_every_route_is_described() -> None:
    described = set(re.findall(r"^\| `([A-Z]+) (/\S+)` \|", PAGE.read_text(), re.MULTILINE))
    served = {
        (method, path)
        for path, (methods, _) in routes.STATES.items()
        if not path.startswith(NOT_FOR_CLIENTS)
        for method in methods
    }
    assert described == served


def test_every_error_is_described() -> None:
    kinds = [kind for kind in StateError.__subclasses__() if kind.__module__.endswith("errors")]
    rows = [
        f"| {kind.status} | `{kind.code}` | {_meaning(kind)} |"
        for kind in sorted(kinds, key=lambda kind: (kind.status, kind.code))
    ]
    head, begin, rest = PAGE.read_text().partition(HEAD)
    _, end, tail = rest.partition("\n\n")
    wanted = head + begin + "\n".join(rows) + end + tail
    if os.environ.get("UPDATE_GOLDEN"):
        PAGE.write_text(wanted)
    assert PAGE.read_text() == wanted, "run `make golden` and read the diff"


def _meaning(kind: type[StateError]) -> str:
    text = (kind.__doc__ or "").strip().rstrip(".")
    return text[0].lower() + text[1:]


def test_every_command_is_shown() -> None:
    parser = argparse.ArgumentParser()
    arguments.add_arguments(parser)
    usage = parser.format_help()
    shown = set(re.findall(r"rwkv-server state ([a-z]+)", PAGE.read_text()))
    for command in shown:
        assert re.search(rf"^    {command} ", usage, re.MULTILINE), command
    assert shown == set(re.findall(r"^    ([a-z]+) ", usage, re.MULTILINE))
