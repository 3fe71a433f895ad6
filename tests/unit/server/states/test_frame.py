from __future__ import annotations

import pytest

from rwkv_server.states.frame import (
    Snapshot,
    choose_snapshot,
    find_stop,
    frame_new,
    frame_resumed,
)

NEW = frame_new([1, 2, 3])
RESUMED = frame_resumed(99, 40, [7], [1, 2])


def test_frames():
    assert (NEW.tokens, NEW.text, NEW.base) == ((1, 2, 3), (1, 2, 3), 0)
    assert (RESUMED.tokens, RESUMED.text, RESUMED.base) == ((99, 7, 1, 2), (7, 1, 2), 40)
    assert (NEW.new, RESUMED.new) == (3, 2)


@pytest.mark.parametrize(
    ("frame", "visible", "consumed", "wanted"),
    [
        # The last token was never read.
        (NEW, (5, 6), 4, Snapshot("final", 4, (6,))),
        # The one that only ended the text wasn't read either.
        (NEW, (5, 6), 5, Snapshot("final", 5, ())),
        # It was: asynchronous scheduling.
        (NEW, (5, 6), 6, Snapshot("prompt", 3, (5, 6))),
        (NEW, (), 3, Snapshot("final", 3, ())),
        (NEW, (), None, Snapshot("prompt", 3, ())),
        # The placeholder isn't a token of the text.
        (RESUMED, (5, 6), 5, Snapshot("final", 44, (6,))),
        (RESUMED, (5, 6), 7, Snapshot("prompt", 43, (5, 6))),
        # A state that hasn't read its prompt is none.
        (NEW, (5,), 2, Snapshot("prompt", 3, (5,))),
    ],
)
def test_which_snapshot(frame, visible, consumed, wanted):
    chosen = choose_snapshot(frame, (5, 6, 7)[: len(visible) + 1], visible, consumed)
    assert chosen == wanted
    text = frame.base + len(frame.text) + len(visible)
    assert chosen.consumed + len(chosen.pending) == text


def test_a_final_state_that_read_another_token_is_none():
    assert choose_snapshot(NEW, (5, 8, 9), (5, 6), 5) == Snapshot("prompt", 3, (5, 6))
    assert choose_snapshot(NEW, (5, 8, 9), (5, 6), 4) == Snapshot("final", 4, (6,))


def test_a_stop_is_looked_for_where_vllm_looks():
    assert find_stop("ab END cd END", "END", 0) == 3
    assert find_stop("ab END cd END", "END", 6) == 10
    # Begun before, ended after what was looked at.
    assert find_stop("ab END", "END", 5) == 3
    assert find_stop("ab", "END", 0) is None
