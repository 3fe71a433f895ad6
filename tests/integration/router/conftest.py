"""Real routers: HAProxy with the rendered config before stub engines, or a skip that says why."""

from collections.abc import Iterator

import haproxy_program
import pytest
from router_rig import Rig, deployment


@pytest.fixture(scope="session", autouse=True)
def haproxy() -> None:
    try:
        haproxy_program.find()
    except haproxy_program.Missing as missing:
        pytest.skip(f"needs {missing}")


@pytest.fixture(scope="module")
def rig(haproxy: None) -> Iterator[Rig]:
    """Three engines behind two routers, kept for a whole file."""
    with Rig(deployment()) as rig:
        yield rig


@pytest.fixture
def own_rig(haproxy: None) -> Iterator[Rig]:
    """The same for one test that breaks things."""
    with Rig(deployment()) as rig:
        yield rig
