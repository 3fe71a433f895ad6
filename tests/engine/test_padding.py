"""Batches that are padded as for a CUDA graph: only the real rows count, no other slot is written.

vLLM then counts requests of no tokens among the decoding ones, leaves their lengths as they were in
an earlier step, and gives them the slot -1 or 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from inproc_engine import Engine

REAL = [2, 1, 3]
UNTOUCHED = [0, 4]  # the null block, and the last slot, which index -1 would be
CASES = {
    "decoding": ([1, 1, 1], 1, 0),
    "decoding, many padded": ([1, 1, 1], 5, 0),
    "a prompt among them, rows padded": ([1, 1, 5], 0, 9),
}


def describe_step(lengths: list[int], padded: int, pad_slot: int) -> Any:
    """vLLM's metadata of a step in whose middle each request has 7 tokens behind it."""
    from vllm.v1.attention.backend import CommonAttentionMetadata

    counts = torch.tensor([*lengths, *[0] * padded], dtype=torch.int32)
    starts = torch.nn.functional.pad(counts.cumsum(0), (1, 0)).to(torch.int32)
    total = counts + 7
    total[len(lengths) :] = 99  # left over from an earlier step
    slots = torch.tensor([*REAL, *[pad_slot] * padded], dtype=torch.int32)
    return CommonAttentionMetadata(
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=total,
        num_reqs=len(counts),
        num_actual_tokens=int(starts[-1]),
        max_query_len=int(counts.max()),
        max_seq_len=int(total.max()),
        block_table_tensor=slots[:, None],
        slot_mapping=torch.zeros(int(starts[-1]), dtype=torch.int64),
        is_prefilling=counts > 1,
        seq_lens_cpu_upper_bound=total,
    )


def run_step(engine: Engine, step: Any, ids: torch.Tensor) -> torch.Tensor:
    """The model's hidden states for `ids`, as the engine's runner would ask for them."""
    from vllm.forward_context import set_forward_context

    runner = engine.runner
    (group,) = runner.attn_groups[0]
    metadata = group.get_metadata_builder().build(0, step)
    by_layer = dict.fromkeys(group.layer_names, metadata)
    with torch.no_grad(), set_forward_context(by_layer, runner.vllm_config):
        return runner.model(ids, torch.zeros_like(ids))


@pytest.fixture
def states(tiny: Engine) -> list[torch.Tensor]:
    """Every state tensor; the slots that nobody owns are NaN, the others random."""
    found = [state for layer in tiny.states() for state in layer]
    generator = torch.Generator().manual_seed(3)
    for state in found:
        state.copy_(torch.randn(state.shape, generator=generator))
        state[UNTOUCHED] = float("nan")
    return found


@pytest.mark.parametrize("full_graphs", [False, True])
@pytest.mark.parametrize("pad_slot", [-1, 0])
@pytest.mark.parametrize("case", CASES)
def test_padding_changes_nothing(
    tiny: Engine,
    states: list[torch.Tensor],
    monkeypatch: pytest.MonkeyPatch,
    case: str,
    pad_slot: int,
    full_graphs: bool,
) -> None:
    from vllm.config import CUDAGraphMode

    lengths, padded, more_rows = CASES[case]
    rows = sum(lengths)
    ids = torch.arange(1, rows + 1)
    before = [state.clone() for state in states]
    wanted = run_step(tiny, describe_step(lengths, 0, pad_slot), ids)
    after = [state.clone() for state in states]
    for state, old in zip(states, before, strict=True):
        state.copy_(old)

    if full_graphs:
        (group,) = tiny.runner.attn_groups[0]
        builder = group.get_metadata_builder()
        monkeypatch.setattr(builder.compilation_config, "cudagraph_mode", CUDAGraphMode.FULL)
        monkeypatch.setattr(builder, "decode_cudagraph_max_bs", 8)
        monkeypatch.setattr(builder, "state_indices_tensor_d", torch.zeros(8, 1, dtype=torch.int32))
    ids = torch.nn.functional.pad(ids, (0, padded + more_rows), value=5)
    out = run_step(tiny, describe_step(lengths, padded, pad_slot), ids)

    assert len(out) == rows + padded + more_rows
    assert bool(out.isfinite().all())
    torch.testing.assert_close(out[:rows], wanted, rtol=0, atol=1e-5)
    for state, want, old in zip(states, after, before, strict=True):
        torch.testing.assert_close(state, want, rtol=0, atol=1e-5, equal_nan=True)
        assert bool(state[UNTOUCHED].isnan().all())
        assert not torch.equal(state[REAL], old[REAL])
