from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rwkv_server.states.connector import params
from rwkv_server.states.connector.params import BadTransfer, Transfer, sign, verify
from rwkv_server.states.slots import Lease

KEY = b"k" * 32
TRANSFERS = [
    Transfer("a"),
    Transfer("b", load=Lease(3, 9)),
    Transfer("c", save=Lease(0, 1), prompt=Lease(1, 2**40)),
    Transfer("ü" * 40, Lease(1, 2), Lease(3, 4), Lease(5, 6)),
]


@pytest.mark.parametrize("transfer", TRANSFERS, ids=lambda t: t.id[:1])
def test_what_is_signed_is_what_is_read(transfer: Transfer) -> None:
    there = json.loads(json.dumps(sign(transfer, KEY))) | {"prompt_token_ids": [1, 2]}
    assert verify(there, KEY) == transfer


@pytest.mark.parametrize("field", [params.FIELD, params.SIGNATURE])
def test_every_changed_character_is_noticed(field: str) -> None:
    signed = sign(TRANSFERS[3], KEY)
    for index, character in enumerate(signed[field]):
        other = "0" if character != "0" else "1"
        changed = signed[field][:index] + other + signed[field][index + 1 :]
        with pytest.raises(BadTransfer):
            verify(signed | {field: changed}, KEY)


def test_another_key_doesn_t_fit() -> None:
    with pytest.raises(BadTransfer, match="another key"):
        verify(sign(TRANSFERS[0], KEY), b"l" * 32)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
NEAR = st.fixed_dictionaries({params.FIELD: ANYTHING, params.SIGNATURE: ANYTHING})


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],  # other work on the machine
)
@given(ANYTHING | NEAR)
def test_nothing_else_is_more_than_refused(anything: Any) -> None:
    with pytest.raises(BadTransfer):
        verify(anything, KEY)
