"""Tables and trees of states."""

from __future__ import annotations

import pytest

from rwkv_server.states.cli import render


def state(ref, parent=None, session=None, at=0.0, expires=100.0):
    return {
        "ref": ref,
        "parent": parent,
        "session": session,
        "consumed_tokens": 10,
        "pending_tokens": 2,
        "nbytes": 4096,
        "finish_reason": "stop",
        "created_at": at,
        "expires_at": expires,
    }


def test_a_table_has_a_line_a_state_the_oldest_first():
    states = [state("b", "a", "s", at=50.0, expires=None), state("a", at=10.0)]
    assert render.render_table(states, now=70.0).splitlines() == [
        "REF  PARENT  SESSION  TOKENS  BYTES  AGE  EXPIRES IN",
        "a    -       -        12      4096   1m   30s",
        "b    a       s        12      4096   20s  never",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(-5, "0s"), (0.4, "0s"), (59, "59s"), (3599, "59m"), (90000, "1d")]
)
def test_times_are_in_their_largest_unit(seconds, text):
    assert render.render_seconds(seconds) == text


def test_a_tree_shows_who_continues_whom():
    states = [
        state("root", session="s", at=1),
        state("turn-2", "root", "s", at=2),
        state("fork", "root", at=3),
        state("turn-3", "turn-2", "s", at=4),
        state("deep", "fork", at=5),
        state("alone", "deleted", at=6),
    ]
    assert render.render_trees(states).splitlines() == [
        "root  12 tokens  stop  session s",
        "├─ turn-2  12 tokens  stop  session s",
        "│  └─ turn-3  12 tokens  stop  session s",
        "└─ fork  12 tokens  stop",
        "   └─ deep  12 tokens  stop",
        "alone  12 tokens  stop  (continues deleted, which is gone)",
    ]
    only = render.render_trees(states, "s")
    assert "deep" in only and "alone" not in only
    assert render.render_trees(states, "t") == ""


def test_a_conversation_of_many_turns_is_a_deep_tree():
    states = [state("0")]
    states += [state(str(n), str(n - 1), at=float(n)) for n in range(1, 3000)]
    assert len(render.render_trees(states).splitlines()) == 3000
