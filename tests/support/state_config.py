"""A small RWKV-7 for tests of its states: only its numbers of layers and heads matter to them."""

from __future__ import annotations

from rwkv_server.model.config import RWKV7Config

LAYERS = 3


def small_config(heads: int) -> RWKV7Config:
    """`LAYERS` layers with that many heads of 64."""
    return RWKV7Config(
        vocab_size=320,
        hidden_size=64 * heads,
        num_hidden_layers=LAYERS,
        head_dim=64,
        intermediate_size=512,
        decay_low_rank_dim=8,
        a_low_rank_dim=8,
        v_low_rank_dim=8,
        gate_low_rank_dim=8,
        norm_eps=1e-5,
        tie_word_embeddings=False,
    )
