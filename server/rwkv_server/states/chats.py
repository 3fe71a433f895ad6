"""Whether this vLLM's chats take tokens in place of messages: later versions do, 0.18 doesn't."""

from __future__ import annotations

import importlib

_MODULE, _TAKES = "vllm.renderers.online_renderer", "_reused_prompt_token_ids"


def take_tokens() -> bool:
    """Whether `kv_transfer_params.prompt_token_ids` is read."""
    try:
        return hasattr(importlib.import_module(_MODULE), _TAKES)
    except ImportError:
        return False
