from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from blobs_behaviour import BlobsBehaviour
from heads_behaviour import HeadsBehaviour
from removal_behaviour import RemovalBehaviour
from state_stores import Clock, memory, volume
from states_behaviour import StatesBehaviour
from store_faults import PaperBlobs, PaperDisk

from rwkv_server.states.store.blobs import Blobs


@pytest.fixture(params=["volume", "memory", "paper volume", "paper"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    backends: dict[str, Callable[[], Blobs]] = {
        "volume": lambda: volume(tmp_path),
        "memory": memory,
        # What the tests of faults stand on must behave as the real ones do.
        "paper volume": lambda: volume(tmp_path, PaperDisk.empty(tmp_path)),
        "paper": PaperBlobs,
    }
    return backends[request.param]()


@pytest.fixture
def clock() -> Clock:
    return Clock()


class TestBlobs(BlobsBehaviour):
    pass


class TestStates(StatesBehaviour):
    pass


class TestHeads(HeadsBehaviour):
    pass


class TestRemoval(RemovalBehaviour):
    pass
