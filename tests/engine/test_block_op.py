"""A block is one operation to graph compilers: what it declares must be what it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

if TYPE_CHECKING:
    from inproc_engine import Engine


def test_its_schema_and_fake_form_are_true(tiny: Engine) -> None:
    from vllm.forward_context import set_forward_context

    config = tiny.runner.vllm_config
    size = tiny.config.hidden_size
    hidden, v_first = torch.randn(5, size), torch.randn(5, size)
    operation = torch.ops.vllm.rwkv7_block.default
    with set_forward_context(None, config):
        for layer in (0, 1):
            torch.library.opcheck(
                operation,
                (hidden, v_first, f"model.layers.{layer}"),
                test_utils=("test_schema", "test_faketensor"),
            )


def test_all_blocks_in_one_call_are_such_an_operation_too(tiny: Engine) -> None:
    from vllm.forward_context import set_forward_context

    size = tiny.config.hidden_size
    hidden, v_first = torch.randn(5, size), torch.randn(5, size)
    with set_forward_context(None, tiny.runner.vllm_config):
        torch.library.opcheck(
            torch.ops.vllm.rwkv7_layers.default,
            (hidden, v_first, "model.layers.0"),
            test_utils=("test_schema", "test_faketensor"),
        )


def test_a_compiler_sees_one_node_a_block_and_no_graph_break(tiny: Engine) -> None:
    from vllm.forward_context import set_forward_context

    blocks = tiny.runner.model.model.blocks
    hidden, v_first = torch.randn(3, tiny.config.hidden_size), torch.empty(3, 128)
    seen: list[torch.fx.GraphModule] = []

    def keep(graph: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> torch.fx.GraphModule:
        seen.append(graph)
        return graph

    def layers(hidden: torch.Tensor, v_first: torch.Tensor) -> torch.Tensor:
        for block in blocks:
            hidden = torch.ops.vllm.rwkv7_block(hidden, v_first, block.prefix)
        return hidden

    compiled = torch.compile(layers, backend=keep, fullgraph=True)
    with set_forward_context(None, tiny.runner.vllm_config), torch.no_grad():
        wanted = layers(hidden, v_first)
        torch.testing.assert_close(compiled(hidden, v_first), wanted, rtol=0, atol=0)
    (graph,) = seen
    calls = [node for node in graph.graph.nodes if "rwkv7_block" in str(node.target)]
    assert len(calls) == len(blocks)


def test_its_fake_form_needs_no_engine() -> None:
    from rwkv_server.model import layers as _registers_it  # noqa: F401

    with FakeTensorMode():
        hidden, v_first = torch.empty(7, 32), torch.empty(7, 16)
        out = torch.ops.vllm.rwkv7_block(hidden, v_first, "no such layer")
    assert out.shape == hidden.shape
