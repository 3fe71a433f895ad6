"""Does the model bring a tokenizer that works without remote code and fits its vocabulary.

A token id beyond the embedding would end the engine for every client at the first prompt that holds
it, so the largest id is compared here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rwkv_server.errors import ModelInvalid
from rwkv_server.model import file_names
from rwkv_server.preflight import json_file

FILE = file_names.TOKENIZER


def check_tokenizer(model: Path, vocab_size: int) -> None:
    """Raise ModelInvalid if `model` has no fast tokenizer, or one with ids beyond `vocab_size`."""
    path = model / FILE
    if not path.exists():
        raise missing_tokenizer(str(model))
    largest = max(_ids(json_file.read_object(path)), default=-1)
    if largest >= vocab_size:
        raise ModelInvalid(
            f"{path}: token id {largest} is outside the model's vocabulary of {vocab_size}",
            found=largest,
            wanted=f"at most {vocab_size - 1}",
        )
    if largest < 0:
        raise ModelInvalid(f"{path} holds no vocabulary")


def missing_tokenizer(place: str) -> ModelInvalid:
    """The error for a model at `place` that brings no tokenizer we can use."""
    return ModelInvalid(
        f"{place} has no {FILE}. Tokenizers that are Python code or a plain vocabulary are not "
        f"run: put the model's {FILE} and tokenizer_config.json beside its weights.",
        wanted=FILE,
    )


def _ids(tokenizer: dict[str, Any]) -> Iterator[int]:
    model = tokenizer.get("model")
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(vocabulary, dict):
        yield from (value for value in vocabulary.values() if isinstance(value, int))
    elif isinstance(vocabulary, list):
        yield len(vocabulary) - 1
    added = tokenizer.get("added_tokens")
    for token in added if isinstance(added, list) else []:
        if isinstance(token, dict) and isinstance(token.get("id"), int):
            yield token["id"]
