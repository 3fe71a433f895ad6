"""Memory on huge pages: weights move into it unchanged, results in it are never overwritten."""

from __future__ import annotations

import errno
import mmap

import pytest
import torch

from rwkv_server.model import arena


def test_parameters_move_side_by_side_and_keep_their_values() -> None:
    shapes = [(3, 5), (1,), (70, 33)]
    values = [torch.randn(shape).bfloat16() for shape in shapes]
    parameters = [torch.nn.Parameter(value.clone(), requires_grad=False) for value in values]
    arena.move(parameters)
    for parameter, value in zip(parameters, values, strict=True):
        assert parameter.equal(value)
        assert parameter.data_ptr() % 64 == 0
    assert parameters[1].data_ptr() - parameters[0].data_ptr() == 64


def test_a_system_without_huge_pages_gives_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(mmap.mmap):
        def madvise(self, *_: int) -> None:
            raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(mmap, "mmap", Refusing)
    parameter = torch.nn.Parameter(torch.ones(3, 5), requires_grad=False)
    arena.move([parameter])
    assert parameter.equal(torch.ones(3, 5))


def test_a_result_that_is_held_is_not_overwritten() -> None:
    results = arena.Results()
    first = results.empty(4, 1000).fill_(1)
    part = first[1:2]
    del first
    second = results.empty(4, 1000).fill_(2)
    assert part.eq(1).all()
    assert second.eq(2).all()


def test_a_result_that_is_gone_leaves_its_memory_to_the_next() -> None:
    results = arena.Results()
    place = results.empty(4, 1000).data_ptr()
    assert results.empty(2, 1000).data_ptr() == place


def test_the_logits_of_a_whole_prompt_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arena, "_MOST_KEPT", 4 * 4000)
    results = arena.Results()
    place = results.empty(4, 1000).data_ptr()
    assert results.empty(5, 1000).fill_(1).shape == (5, 1000)
    assert results.empty(1, 1000).data_ptr() == place
