"""What turns requests into prompts inside vLLM 0.18, and World prompts in every version.

vLLM 0.18 lets a renderer make its tokenizer, and transformers' renderer would make another kind.
Its chats take no tokens, so ours takes those that are carried beside a request.
"""

from __future__ import annotations

from typing import Any

from vllm.renderers.hf import HfRenderer

from rwkv_server import vllm_chat_compat
from rwkv_server.tokenizer.world import WorldTokenizer


class CarriedRenderer(HfRenderer):
    """vLLM's own, but for chats whose tokens are known."""

    async def render_messages_async(self, messages: list[Any], *args: Any, **options: Any) -> Any:
        """The conversation and its prompt; vLLM looks at the conversation for echoes only."""
        tokens = vllm_chat_compat.take_carried()
        if tokens is None:
            return await super().render_messages_async(messages, *args, **options)
        return list(messages), {"prompt_token_ids": tokens}


class WorldRenderer(CarriedRenderer):
    """Later versions hand the tokenizer over; only the first ask this class for it."""

    @classmethod
    def from_config(cls, config: Any, tokenizer_kwargs: dict[str, Any]) -> WorldRenderer:
        """The renderer with its tokenizer, or without one where the engine is to have none."""
        if config.model_config.skip_tokenizer_init:
            return cls(config, None)
        path = tokenizer_kwargs["tokenizer_name"]
        side = tokenizer_kwargs.get("truncation_side", "left")
        return cls(config, WorldTokenizer.from_pretrained(path, truncation_side=side))
