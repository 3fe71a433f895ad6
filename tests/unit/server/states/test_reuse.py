"""The index of automatic reuse: hashes of token prefixes at the lengths that are stored."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rwkv_server.states import reuse

TOKENS = list(range(7, 307))


def make_index(limit: int = 100, fingerprint: bytes = b"model") -> reuse.PrefixIndex:
    return reuse.PrefixIndex(fingerprint, limit)


def add(index: reuse.PrefixIndex, tokens: list[int], tenant: str = "ada") -> reuse.Prefix:
    prefix = index.name(tenant, tokens)
    index.add(tenant, prefix)
    return prefix


def test_a_longer_prompt_finds_what_is_stored_of_it_longest_first() -> None:
    index = make_index()
    short, long = add(index, TOKENS[:20]), add(index, TOKENS[:150])
    add(index, [1, *TOKENS[:99]])
    assert index.find("ada", TOKENS) == [long, short]
    assert [prefix.length for prefix in (long, short)] == [150, 20]


def test_one_token_is_left_to_read() -> None:
    index = make_index()
    add(index, TOKENS)
    assert index.find("ada", TOKENS) == []
    assert len(index.find("ada", [*TOKENS, 1])) == 1


@pytest.mark.parametrize(
    ("fingerprint", "tenant"),
    [(b"model", "eve"), (b"other", "ada"), (b"model\0ad", "a")],
    ids=["another tenant", "another model", "a name that ends where the salt does"],
)
def test_nothing_is_found_across(fingerprint: bytes, tenant: str) -> None:
    stored = make_index().name("ada", TOKENS[:30])
    other = reuse.PrefixIndex(fingerprint, 100).name(tenant, TOKENS[:30])
    assert stored.key != other.key
    index = make_index()
    add(index, TOKENS[:30])
    assert index.find("eve", TOKENS) == []


def test_a_changed_token_anywhere_in_it_finds_nothing() -> None:
    index = make_index()
    add(index, TOKENS[:30])
    for at in (0, 15, 29):
        assert index.find("ada", [*TOKENS[:at], 5, *TOKENS[at + 1 :]]) == []


def test_the_least_recently_used_goes_first() -> None:
    index = make_index(limit=2)
    first, second = add(index, TOKENS[:10]), add(index, TOKENS[:20])
    index.add("ada", first)
    assert index.add("ada", index.name("ada", TOKENS[:30])) == [second]
    assert [prefix.length for prefix in index.find("ada", TOKENS)] == [30, 10]


def test_dropped_and_forgotten_are_not_found() -> None:
    index = make_index()
    kept, dropped = add(index, TOKENS[:10]), add(index, TOKENS[:20])
    index.drop("ada", dropped.key)
    index.drop("ada", "never there")
    assert index.find("ada", TOKENS) == [kept]
    assert index.forget("ada") == [kept]
    assert index.find("ada", TOKENS) == index.forget("ada") == []


@given(
    tokens=st.lists(st.integers(0, 65535), min_size=1, max_size=60),
    cuts=st.sets(st.integers(0, 60), max_size=8),
)
def test_all_stored_lengths_are_found_in_one_pass(tokens: list[int], cuts: set[int]) -> None:
    index = make_index()
    for cut in cuts:
        if cut <= len(tokens):
            add(index, tokens[:cut])
    found = [prefix.length for prefix in index.find("ada", tokens)]
    assert found == sorted((cut for cut in cuts if cut < len(tokens)), reverse=True)


def test_a_name_is_the_same_wherever_it_is_made() -> None:
    random.seed(3)
    cuts = sorted(random.sample(range(1, 300), 20))
    together = reuse.name_prefixes(b"model", "ada", TOKENS, cuts)
    assert together == [make_index().name("ada", TOKENS[:cut]) for cut in cuts]
