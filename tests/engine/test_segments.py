"""Reading a step: lengths, slots and what was computed before, whatever vLLM calls a row."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch

# In batch order: two that decode, a prompt of one token, a prompt's second part, a whole prompt.
LENGTHS = [1, 1, 1, 4, 7]
COMPUTED = [9, 30, 0, 32, 0]
SLOTS = [3, 1, 5, 2, 4]
COPIES = ("seq_lens_cpu_upper_bound", "_seq_lens_cpu")


def ends(lengths: list[int]) -> torch.Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).int()


def fields(lengths: list[int], computed: list[int], slots: list[int]) -> dict[str, Any]:
    """What vLLM tells a backend of a step, without the host's copy of the token counts."""
    tokens = [length + before for length, before in zip(lengths, computed, strict=True)]
    return {
        "query_start_loc": ends(lengths),
        "query_start_loc_cpu": ends(lengths),
        "seq_lens": torch.tensor(tokens, dtype=torch.int32),
        "num_reqs": len(lengths),
        "num_actual_tokens": sum(lengths),
        "max_query_len": max(lengths),
        "max_seq_len": max(tokens),
        "block_table_tensor": torch.tensor(slots, dtype=torch.int32)[:, None],
        "slot_mapping": torch.zeros(sum(lengths), dtype=torch.int64),
    }


def common(copy: str | None, **values: Any) -> Any:
    """This version's own description of a step."""
    from vllm.v1.attention.backend import CommonAttentionMetadata

    known = {field.name for field in dataclasses.fields(CommonAttentionMetadata)}
    if copy in known:
        values[copy] = values["seq_lens"].clone()
    return CommonAttentionMetadata(**values)


def rows(slots: list[int], decodes: int) -> SimpleNamespace:
    table = torch.tensor(slots, dtype=torch.int32)
    return SimpleNamespace(
        num_decodes=decodes,
        num_prefills=len(slots) - decodes,
        state_indices_tensor_d=table[:decodes, None],
        state_indices_tensor_p=table[decodes:],
    )


@pytest.mark.parametrize("copy", [*COPIES, None])
def test_what_was_computed_is_read_from_the_copy_that_there_is(copy: str | None) -> None:
    from rwkv_server import vllm_compat

    step = common(copy, **fields(LENGTHS, COMPUTED, SLOTS))
    segments = vllm_compat.read_segments(step, rows(SLOTS, decodes=2))
    assert segments == (LENGTHS, SLOTS, COMPUTED)
    assert segments.fresh == [False, False, True, False, True]


@pytest.mark.parametrize("decodes", [2, 3])
def test_a_prompt_of_one_token_is_fresh_whichever_kind_it_is_taken_for(decodes: int) -> None:
    """0.18 takes it for a decoding request, whose slot nobody clears."""
    from rwkv_server import vllm_compat

    step = common(None, **fields(LENGTHS, COMPUTED, SLOTS))
    segments = vllm_compat.read_segments(step, rows(SLOTS, decodes))
    assert segments.slots == SLOTS
    assert segments.fresh[2]


def test_rows_that_pad_a_batch_touch_no_slot() -> None:
    """As for CUDA graphs: more requests than there are, of no length, with slot −1."""
    from rwkv_server import vllm_compat
    from rwkv_server.kernels import plan

    step = common(None, **fields([1, 1, 0, 0], [4, 0, 0, 0], [2, 3, -1, -1]))
    lengths, slots, computed = vllm_compat.read_segments(step, rows([2, 3, -1, -1], decodes=4))
    fresh = [count == 0 for count in computed]
    made = plan.build_plan(lengths, slots, fresh)
    assert (made.num_rows, made.slots.tolist(), made.fresh.tolist()) == (2, [2, 3], [3])
