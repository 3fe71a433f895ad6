"""States as text: a table, and the trees of their forks. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

State = Mapping[str, Any]

_HEAD = ("REF", "PARENT", "SESSION", "TOKENS", "BYTES", "AGE", "EXPIRES IN")
_UNITS = ((86400, "d"), (3600, "h"), (60, "m"), (1, "s"))


def render_table(states: Sequence[State], now: float) -> str:
    """One line a state, the oldest first."""
    rows = [_HEAD]
    for state in sorted(states, key=_age):
        expires = state["expires_at"]
        row = (
            state["ref"],
            state["parent"] or "-",
            state["session"] or "-",
            str(_tokens(state)),
            str(state["nbytes"]),
            render_seconds(now - state["created_at"]),
            "never" if expires is None else render_seconds(expires - now),
        )
        rows.append(row)
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    lines = ("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
    return "\n".join(lines)


def render_seconds(seconds: float) -> str:
    """A time span in its largest whole unit."""
    whole = max(0, int(seconds))
    for size, unit in _UNITS:
        if whole >= size:
            return f"{whole // size}{unit}"
    return "0s"


def render_trees(states: Sequence[State], session: str | None = None) -> str:
    """Each state under the one that it continues.

    Args:
        states: all states of a tenant.
        session: only the trees that this session has a part in.
    """
    known = {state["ref"] for state in states}
    children: dict[str | None, list[State]] = {}
    for state in sorted(states, key=_age):
        parent = state["parent"] if state["parent"] in known else None
        children.setdefault(parent, []).append(state)
    lines: list[str] = []
    for root in children.get(None, ()):
        tree = _members(root, children)
        if session is None or any(state["session"] == session for state in tree):
            gone = f"  (continues {root['parent']}, which is gone)" if root["parent"] else ""
            lines += [_label(root) + gone, *_below(root, children)]
    return "\n".join(lines)


def _members(root: State, children: Mapping[str | None, list[State]]) -> list[State]:
    found, waiting = [], [root]
    while waiting:
        state = waiting.pop()
        found.append(state)
        waiting += children.get(state["ref"], ())
    return found


def _below(root: State, children: Mapping[str | None, list[State]]) -> list[str]:
    """The lines under a state; a long conversation is a deep tree, so this doesn't recurse."""
    lines: list[str] = []
    waiting = [(state, "") for state in reversed(children.get(root["ref"], ()))]
    last = {id(siblings[-1]) for siblings in children.values()}
    while waiting:
        state, indent = waiting.pop()
        ends = id(state) in last
        lines.append(f"{indent}{'└─' if ends else '├─'} {_label(state)}")
        deeper = indent + ("   " if ends else "│  ")
        waiting += [(child, deeper) for child in reversed(children.get(state["ref"], ()))]
    return lines


def _label(state: State) -> str:
    session = f"  session {state['session']}" if state["session"] else ""
    return f"{state['ref']}  {_tokens(state)} tokens  {state['finish_reason']}{session}"


def _tokens(state: State) -> int:
    return int(state["consumed_tokens"]) + int(state["pending_tokens"])


def _age(state: State) -> tuple[float, str]:
    return state["created_at"], state["ref"]
