from __future__ import annotations

import dataclasses

import pytest
from state_config import small_config

from rwkv_server.model import state_layout
from rwkv_server.states.layout import StateLayout

CONFIG = small_config(2)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_tensors_follow_each_other_without_gaps(dtype: str) -> None:
    layout = StateLayout.of(CONFIG, dtype)
    end = 0
    for tensor in layout.tensors:
        assert tensor.offset == end
        end += tensor.nbytes
    assert end == layout.nbytes == state_layout.session_bytes(CONFIG, dtype)


def test_names_shapes_and_types() -> None:
    layout = StateLayout.of(CONFIG, "bfloat16")
    assert [(t.name, t.shape, t.dtype) for t in layout.of_layer(1)] == [
        ("layers.1.att_shift", (128,), "bfloat16"),
        ("layers.1.wkv", (2, 64, 64), "float32"),
        ("layers.1.ffn_shift", (128,), "bfloat16"),
    ]
    assert layout.version == state_layout.LAYOUT_VERSION


def test_a_layer_s_part_is_a_page_of_the_engine_s() -> None:
    layout = StateLayout.of(CONFIG, "bfloat16")
    assert sum(t.nbytes for t in layout.of_layer(2)) == state_layout.layer_bytes(CONFIG, "bfloat16")
    deeper = StateLayout.of(dataclasses.replace(CONFIG, num_hidden_layers=4), "bfloat16")
    assert deeper.of_layer(2) == layout.of_layer(2)
