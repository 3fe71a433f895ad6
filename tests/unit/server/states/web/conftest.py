"""One engine's state API over a store in memory, for what needs no more than that."""

from __future__ import annotations

import pytest
import state_app


@pytest.fixture
async def engine():
    return (await state_app.start())[0]


@pytest.fixture
async def http(engine):
    async with state_app.client(engine) as client:
        yield client
