"""Which files beside the weights belong to a model; all others in a repository are left alone.

Above all Python files are: nothing here is ever run, and nothing is downloaded to be run.
"""

from __future__ import annotations

CONFIG = "config.json"
TOKENIZER = "tokenizer.json"
# The World vocabulary, where a model has no tokenizer.json.
VOCABULARY = "rwkv_vocab_v20230424.txt"
# A state-tuned start, beside a .pth that has none in it.
INITIAL_STATE = "initial_state.pth"
INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

# What vLLM reads of a model, config and tokenizer first.
SIDE_FILES = (
    CONFIG,
    TOKENIZER,
    VOCABULARY,
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "generation_config.json",
    "chat_template.jinja",
    "chat_template.json",
)
