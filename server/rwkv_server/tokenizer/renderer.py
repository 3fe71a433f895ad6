"""What turns requests into World prompts inside vLLM: as for any tokenizer of transformers.

vLLM 0.18 lets a renderer make its tokenizer, and transformers' renderer would make another kind.
"""

from __future__ import annotations

from typing import Any

from vllm.renderers.hf import HfRenderer

from rwkv_server.tokenizer.world import WorldTokenizer


class WorldRenderer(HfRenderer):
    """Later versions hand the tokenizer over; only the first ask this class for it."""

    @classmethod
    def from_config(cls, config: Any, tokenizer_kwargs: dict[str, Any]) -> WorldRenderer:
        """The renderer with its tokenizer, or without one where the engine is to have none."""
        if config.model_config.skip_tokenizer_init:
            return cls(config, None)
        path = tokenizer_kwargs["tokenizer_name"]
        side = tokenizer_kwargs.get("truncation_side", "left")
        return cls(config, WorldTokenizer.from_pretrained(path, truncation_side=side))
