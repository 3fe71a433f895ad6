"""Names: what is let in, and what a server-made one tells."""

from __future__ import annotations

import secrets

import pytest

from rwkv_server.states.errors import StateInvalidRef
from rwkv_server.states.refs import Home, check_id, check_name, make_ref, parse_home


@pytest.mark.parametrize("prefix", ["", "resp_", "rwkv-"])
def test_a_made_ref_tells_its_home(prefix: str) -> None:
    home = Home(12, "a1b2c3d4")
    ref = make_ref(home, secrets.token_bytes, prefix)
    assert parse_home(ref) == home
    assert check_id(ref, "state.ref") == ref
    assert len(ref) == len(prefix) + len("p12-a1b2c3d4-") + 22


def test_refs_differ_where_randomness_does() -> None:
    home = Home(0, "a1b2c3d4")
    made = {make_ref(home, lambda count, n=n: bytes([n] * count)) for n in range(200)}
    assert len(made) == 200


def test_a_ref_without_its_epoch_is_not_made() -> None:
    with pytest.raises(ValueError, match="epoch"):
        make_ref(Home(0, None), secrets.token_bytes)


@pytest.mark.parametrize("name", ["chapter-1", "a", "P0-x", "probe", "p-1", "a" * 128, "0.v:1_x"])
def test_names_of_clients(name: str) -> None:
    assert check_name(name, "state.save") == name
    assert parse_home(name) is None


@pytest.mark.parametrize(
    "value", ["", "-a", "ä", "a/b", "a b", "a\n", "../x", "a" * 129, None, 7, True, ["a"], "a\0"]
)
def test_what_is_no_id_is_named(value: object) -> None:
    with pytest.raises(StateInvalidRef, match=r"state\.ref is ") as caught:
        check_id(value, "state.ref")
    assert caught.value.param == "state.ref"


@pytest.mark.parametrize("name", ["p0-a", "p12-", "rwkv-p3-x", "resp_p0-a1b2c3d4-x"])
def test_names_that_look_made_are_reserved(name: str) -> None:
    with pytest.raises(StateInvalidRef, match="made by the server"):
        check_name(name, "state.save")
