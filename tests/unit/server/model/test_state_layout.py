"""State sizes against the published table of RWKV-7 sizes (bytes of one session)."""

import pytest

from rwkv_server.model import state_layout
from rwkv_server.model.config import RWKV7Config


def sized(layers: int, hidden: int) -> RWKV7Config:
    return RWKV7Config(65536, hidden, layers, 64, 4 * hidden, 64, 64, 32, 128, 1e-5, False)


@pytest.mark.parametrize(
    ("layers", "hidden", "nbytes"),
    [
        (12, 768, 2_433_024),
        (24, 1024, 6_488_064),
        (24, 2048, 12_976_128),
        (32, 2560, 21_626_880),
        (32, 4096, 34_603_008),
        (61, 4096, 65_961_984),
    ],
)
def test_fp32_sessions_have_the_published_size(layers: int, hidden: int, nbytes: int) -> None:
    assert state_layout.session_bytes(sized(layers, hidden), "float32") == nbytes


def test_only_the_shifts_shrink_with_the_model_dtype() -> None:
    config = sized(12, 768)
    wide, narrow = (state_layout.layer_state(config, d) for d in ("float32", "bfloat16"))
    assert [t.dtype for t in narrow] == ["bfloat16", "float32", "bfloat16"]
    assert wide[1] == narrow[1]
    assert narrow[0].nbytes * 2 == wide[0].nbytes


def test_the_cache_holds_one_slot_more_than_sessions() -> None:
    config = sized(12, 768)
    assert state_layout.cache_bytes(config, "float32", 16) == 17 * 2_433_024


@pytest.mark.parametrize(("ranks", "heads"), [(1, 12), (2, 6), (4, 3)])
def test_a_rank_has_its_heads_and_the_whole_shifts(ranks, heads):
    config = sized(12, 768)
    shapes = [tensor.shape for tensor in state_layout.layer_state(config, "bfloat16", ranks)]
    assert shapes == [(1, 768), (heads, 64, 64), (1, 768)]
