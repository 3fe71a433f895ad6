"""Which tokenizer a model has, and whether it fits the vocabulary; none is ever run as code.

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
from rwkv_server.tokenizer import vocabulary

FILE = file_names.TOKENIZER


def check_tokenizer(model: Path, vocab_size: int) -> bool:
    """Whether `model` needs the World tokenizer, as it brings none that could be used.

    Raises:
        ModelInvalid: what it brings has ids beyond `vocab_size`, or it isn't a World model.
    """
    path = model / FILE
    if not path.exists():
        _check_world(model, vocab_size)
        return True
    largest = max(_ids(json_file.read_object(path)), default=-1)
    if largest >= vocab_size:
        raise ModelInvalid(
            f"{path}: token id {largest} is outside the model's vocabulary of {vocab_size}",
            found=largest,
            wanted=f"at most {vocab_size - 1}",
        )
    if largest < 0:
        raise ModelInvalid(f"{path} holds no vocabulary")
    return False


def _check_world(model: Path, vocab_size: int) -> None:
    """A World model has that vocabulary's size, or the vocabulary itself beside its weights."""
    beside = model / file_names.VOCABULARY
    if beside.is_file():
        if not vocabulary.is_world(beside):
            raise ModelInvalid(
                f"{beside} is not the World vocabulary of that name: "
                f"put the model's {FILE} beside its weights",
                found="another vocabulary",
                wanted=FILE,
            )
        if vocab_size <= vocabulary.LARGEST:
            raise ModelInvalid(
                f"{beside}: token id {vocabulary.LARGEST} is outside the model's vocabulary "
                f"of {vocab_size}",
                found=vocabulary.LARGEST,
                wanted=f"at most {vocab_size - 1}",
            )
    elif vocab_size != vocabulary.PADDED:
        raise ModelInvalid(
            f"{model} has no {FILE}, and a vocabulary of {vocab_size} is not the World "
            f"vocabulary's {vocabulary.PADDED}. Tokenizers that are Python code are not run: "
            f"put the model's {FILE} and tokenizer_config.json beside its weights.",
            found=vocab_size,
            wanted=f"{FILE}, or {vocabulary.PADDED}",
        )


def _ids(tokenizer: dict[str, Any]) -> Iterator[int]:
    model = tokenizer.get("model")
    entries = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(entries, dict):
        yield from (value for value in entries.values() if isinstance(value, int))
    elif isinstance(entries, list):
        yield len(entries) - 1
    added = tokenizer.get("added_tokens")
    for token in added if isinstance(added, list) else []:
        if isinstance(token, dict) and isinstance(token.get("id"), int):
            yield token["id"]
