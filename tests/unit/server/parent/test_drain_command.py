from __future__ import annotations

import pytest

from rwkv_server.parent.drain_command import post_drain, run_drain


def run(answers, timeout_s=10.0):
    now = [0.0]

    def sleep(seconds):
        now[0] += seconds

    waiting = list(answers)
    post = lambda port: waiting.pop(0) if len(waiting) > 1 else waiting[0]  # noqa: E731
    return run_drain(8001, timeout_s, post, sleep, lambda: now[0])


@pytest.mark.parametrize(
    ("answers", "words"),
    [
        ([None], "nothing to drain: no parent answers on port 8001"),
        ([True], "drained in 0.0 s"),
        ([False, False, True], "drained in 0.6 s"),
        ([False, None], "nothing to drain: no parent answers on port 8001"),
        ([False], "gave up waiting for the drain after 10 s"),
    ],
)
def test_how_it_ends(answers, words):
    assert run(answers) == words


def test_a_closed_port_means_no_parent():
    assert post_drain(1) is None
