from __future__ import annotations

import json
import logging
import urllib.error
import urllib.request

import pytest

from rwkv_server.errors import DownloadFailed
from rwkv_server.fetch import progress


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def told(clock):
    return progress.Progress(clock)


def test_bytes_percent_and_rate(told, clock):
    told.set_bytes(100, 1000)
    told.enter("Downloading", "hub org/m@main: model.safetensors (1 of 1)")
    told.add(100)
    clock.now = 2.0
    told.add(300)
    assert told.render() == {
        "phase": "Downloading",
        "message": "hub org/m@main: model.safetensors (1 of 1)",
        "percent": 50,
        "bytes": 500,
        "total": 1000,
        "rate": 200,
    }


def test_an_old_speed_is_no_speed(told, clock):
    told.add(1000)
    clock.now = 11.0
    assert told.render()["rate"] == 0


def test_bytes_that_were_there_are_no_speed(told):
    told.set_bytes(10**9, 2 * 10**9)
    assert told.render()["rate"] == 0


def test_without_a_total_there_is_no_percentage(told):
    told.add(5)
    assert told.render()["percent"] is None


def test_a_phase_may_count_otherwise(told):
    told.set_bytes(10, 10)
    told.enter("Converting", "converting", 7)
    assert told.render()["percent"] == 7


def test_the_log_hears_of_it_now_and_then(told, clock, caplog):
    told.set_bytes(0, 1000)
    told.enter("Downloading", "it comes")
    with caplog.at_level(logging.INFO):
        for second in range(60):
            clock.now = float(second)
            told.add(10)
    assert len(caplog.messages) == 3
    assert caplog.messages[0].startswith("it comes: 16 %")


def test_the_port(told):
    server = progress.serve(told, 0)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        with urllib.request.urlopen(f"{url}/progress") as answer:
            assert json.loads(answer.read()) == told.render()
        with pytest.raises(urllib.error.HTTPError, match="404") as caught:
            urllib.request.urlopen(f"{url}/other")
        caught.value.close()
        with pytest.raises(DownloadFailed, match="can't be opened"):
            progress.serve(told, server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
