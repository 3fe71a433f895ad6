"""A router's memory: what HAProxy may hold fits under the pod's limit, whatever the body size."""

import pytest

from rwkv_operator.api import spec
from rwkv_operator.manifests import router_sizing

KIB, MIB = 2**10, 2**20


@pytest.mark.parametrize("body", [16 * KIB, 64 * KIB, MIB, 4 * MIB, 16 * MIB])
def test_all_that_may_be_held_fits_under_the_limit(body: int) -> None:
    sizing = router_sizing.router_sizing(spec.Routing(max_body_bytes=body))
    held = sizing.buffers * sizing.buffer_bytes + sizing.connections * router_sizing.CONNECTION
    assert held + router_sizing.BASE == sizing.memory_limit_bytes
    assert sizing.buffer_bytes > body
    assert sizing.buffers >= router_sizing.MIN_BUFFERS


def test_the_usual_limit_is_below_two_gigabytes() -> None:
    sizing = router_sizing.router_sizing(spec.Routing())
    assert (sizing.buffers, sizing.memory_limit_bytes // MIB) == (1024, 1376)


def test_small_bodies_get_no_more_buffers_than_there_are_connections() -> None:
    sizing = router_sizing.router_sizing(spec.Routing(max_body_bytes=16 * KIB))
    assert sizing.buffers == sizing.connections
