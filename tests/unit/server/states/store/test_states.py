from __future__ import annotations

from pathlib import Path

import pytest
from state_stores import Clock, memory, volume
from store_behaviour import BlobsBehaviour, HeadsBehaviour, StatesBehaviour

from rwkv_server.states.store.blobs import Blobs


@pytest.fixture(params=["volume", "memory"])
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    return volume(tmp_path) if request.param == "volume" else memory()


@pytest.fixture
def clock() -> Clock:
    return Clock()


class TestBlobs(BlobsBehaviour):
    pass


class TestStates(StatesBehaviour):
    pass


class TestHeads(HeadsBehaviour):
    pass
