"""How a step is described to a GPU: padded as recorded, at fixed addresses, never waiting."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

from rwkv_server.kernels import dispatch
from rwkv_server.kernels.device_plan import build_device_plan

if TYPE_CHECKING:
    from inproc_engine import Engine


@pytest.fixture
def builder(tiny: Engine, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The engine's builder of plans, as on a GPU that records steps."""
    from vllm.config import CUDAGraphMode

    host = tiny.runner.attn_groups[0][0].get_metadata_builder()
    chosen = dataclasses.replace(dispatch.choose_kernels("cpu"), on_device=True)
    monkeypatch.setattr(dispatch, "choose_kernels", lambda _device_type: chosen)
    monkeypatch.setattr(
        host.vllm_config.compilation_config, "cudagraph_mode", CUDAGraphMode.FULL_DECODE_ONLY
    )
    return type(host)(host.kv_cache_spec, host.layer_names, host.vllm_config, torch.device("cpu"))


def describe(lengths: list[int], totals: list[int], blocks: list[int]) -> Any:
    """A step as vLLM's runner describes it; requests of no tokens are padding."""
    from vllm.v1.attention.backend import CommonAttentionMetadata

    starts = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    seq_lens = torch.tensor(totals, dtype=torch.int32)
    return CommonAttentionMetadata(
        query_start_loc=starts,
        query_start_loc_cpu=starts.clone(),
        seq_lens=seq_lens,
        seq_lens_cpu_upper_bound=seq_lens.clone(),
        num_reqs=len(lengths),
        num_actual_tokens=max(sum(lengths), len(lengths)),
        max_query_len=max(lengths),
        max_seq_len=max(totals),
        block_table_tensor=torch.tensor(blocks, dtype=torch.int32)[:, None],
        slot_mapping=torch.zeros(sum(lengths), dtype=torch.int64),
        is_prefilling=torch.tensor(
            [bool(n) and total == n for n, total in zip(lengths, totals, strict=True)]
        ),
    )


def test_padded_requests_have_no_slot(builder: Any) -> None:
    step = describe([1, 1, 0, 0], [9, 40, 0, 0], [3, 2, 0, 0])
    planned = builder.build(0, step).plan
    assert planned.decodes
    assert planned.num_rows == 4
    assert planned.slots.tolist() == [3, 2, -1, -1]
    assert planned.fresh.tolist()[:2] == [0, 0]


def test_a_padded_request_with_a_stale_slot_has_none(builder: Any) -> None:
    planned = builder.build(0, describe([1, 0, 0], [9, 7, 0], [3, 4, 0])).plan
    assert planned.slots.tolist() == [3, -1, -1]


def test_steps_that_only_decode_are_planned_at_the_same_addresses(builder: Any) -> None:
    first = builder.build_for_cudagraph_capture(describe([1] * 4, [2] * 4, [0] * 4)).plan
    places = first.slots.data_ptr(), first.fresh.data_ptr()
    assert first.slots.tolist() == [-1] * 4  # recording writes nothing
    later = builder.build(0, describe([1, 1, 1, 0], [9, 1, 40, 0], [3, 1, 2, 0])).plan
    assert (later.slots.data_ptr(), later.fresh.data_ptr()) == places
    assert first.slots.tolist() == [3, 1, 2, -1]
    assert first.fresh.tolist()[:3] == [0, 1, 0]


def test_a_mixed_step_says_which_requests_begin(builder: Any) -> None:
    planned = builder.build(0, describe([1, 5, 20], [9, 5, 30], [3, 1, 2])).plan
    assert not planned.decodes
    assert planned.slots.tolist() == [3, 1, 2]
    assert planned.fresh.tolist() == [0, 1, 0]
    assert planned.starts.tolist() == [0, 1, 6, 26]


@pytest.mark.parametrize("decodes", [True, False])
def test_planning_never_waits_for_the_device(decodes: bool) -> None:
    """Fake tensors have no values: whoever asks for one, as `tolist` does, is refused."""
    from rwkv_server import vllm_compat

    with FakeTensorMode():
        starts = torch.zeros(4, dtype=torch.int32)
        slots, seq_lens = torch.zeros(3, 1, dtype=torch.int32), torch.zeros(3, dtype=torch.int32)
        with pytest.raises(DataDependentOutputException):
            starts.tolist()
        step = SimpleNamespace(num_reqs=3, query_start_loc=starts, seq_lens=seq_lens)
        state = SimpleNamespace(
            num_decodes=3 if decodes else 1,
            num_prefills=0 if decodes else 2,
            state_indices_tensor_d=slots if decodes else slots[:1],
            state_indices_tensor_p=None if decodes else slots[1:, 0],
        )
        segments = vllm_compat.read_device_segments(step, state)
        planned = build_device_plan(*segments, 40, decodes=decodes)
    assert len(planned.slots) == 3
