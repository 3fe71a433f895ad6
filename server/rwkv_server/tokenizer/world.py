"""The World tokenizer as vLLM wants one: greedy longest match in, transformers' own decoding out.

A fast tokenizer whose backend knows every token's bytes but no rule to choose them, so that
streaming, logprobs and structured output work as with any other model; the choice is the Rust
encoder's of `pyrwkv-tokenizer`. No text makes a special token: what a user writes is only text.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pyrwkv_tokenizer
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import BatchEncoding, PreTrainedTokenizerFast

from rwkv_server.tokenizer import vocabulary

END_TEXT = "<|rwkv_tokenizer_end_of_text|>"
TEMPLATE = "chat_template.jinja"


class WorldTokenizer(PreTrainedTokenizerFast):
    """See the module; nothing in it changes after it was made, so copies share everything."""

    model_input_names = ("input_ids", "attention_mask")

    def __init__(self, chat_template: str, truncation_side: str = "right") -> None:
        """Build it from the installed vocabulary.

        Args:
            chat_template: a Jinja template.
            truncation_side: where a text that is too long loses tokens, left or right.
        """
        super().__init__(
            tokenizer_object=_backend(),
            chat_template=chat_template,
            truncation_side=truncation_side,
            eos_token=END_TEXT,
            pad_token=END_TEXT,
            clean_up_tokenization_spaces=False,
        )

    @classmethod
    def from_pretrained(
        cls, path: str | Path, *args: Any, truncation_side: str = "right", **options: Any
    ) -> WorldTokenizer:
        """The tokenizer for the model in folder `path`, whose own chat template comes first."""
        return cls(read_template(Path(path)), truncation_side)

    def __deepcopy__(self, memo: dict[int, Any]) -> WorldTokenizer:
        """The tokenizer itself."""
        return self

    @property
    def max_token_id(self) -> int:
        """The largest token there is."""
        return vocabulary.LARGEST

    @property
    def max_chars_per_token(self) -> int:
        """Characters of the longest token."""
        return _longest()

    def get_vocab(self) -> dict[str, int]:
        """Every token's printable form and number."""
        return _letters()

    def tokenize(self, text: str, *args: Any, **options: Any) -> list[str]:
        """The tokens' printable forms."""
        return self.convert_ids_to_tokens(self.encode(text))

    def encode(
        self,
        text: str,
        *args: Any,
        truncation: bool | None = None,
        max_length: int | None = None,
        **options: Any,
    ) -> list[int]:
        """The token numbers of `text`."""
        ids: list[int] = _encoder().encode(text)
        if truncation and max_length is not None and len(ids) > max_length:
            return ids[len(ids) - max_length :] if self._cuts_left() else ids[:max_length]
        return ids

    def __call__(
        self,
        text: str | list[str],
        *args: Any,
        return_offsets_mapping: bool = False,
        **options: Any,
    ) -> BatchEncoding:
        """`input_ids` and `attention_mask` of one text, or lists of them."""
        if isinstance(text, list):
            rows = [
                self(one, return_offsets_mapping=return_offsets_mapping, **options) for one in text
            ]
            return BatchEncoding({name: [row[name] for row in rows] for name in rows[0]})
        ids = self.encode(text, **options)
        encoded: dict[str, Any] = {"input_ids": ids, "attention_mask": [1] * len(ids)}
        if return_offsets_mapping:
            whole = self.encode(text)
            spans = find_spans(text, [len(_tokens()[number]) for number in whole])
            cut = len(whole) - len(ids)
            encoded["offset_mapping"] = spans[cut:] if self._cuts_left() else spans[: len(ids)]
        return BatchEncoding(encoded)

    def _cuts_left(self) -> bool:
        return bool(self.truncation_side == "left")


def find_spans(text: str, lengths: list[int]) -> list[tuple[int, int]]:
    """First character and the one after the last of each token, by the tokens' bytes.

    Tokens that share a character both have it.
    """
    owners = [at for at, char in enumerate(text) for _ in char.encode()]
    spans, start = [], 0
    for length in lengths:
        spans.append((owners[start], owners[start + length - 1] + 1))
        start += length
    return spans


def read_template(folder: Path) -> str:
    """The chat template beside a model's weights, or ours."""
    own = folder / TEMPLATE
    return (own if own.is_file() else Path(__file__).with_name(TEMPLATE)).read_text("utf-8")


@cache
def _encoder() -> Any:
    return pyrwkv_tokenizer.RWKVTokenizer()


@cache
def _tokens() -> dict[int, bytes]:
    return vocabulary.read_tokens(vocabulary.find_file())


@cache
def _letters() -> dict[str, int]:
    """Each token with a letter for a byte, in the alphabet of the backend's decoder."""
    letter = byte_letters()
    named = {"".join(letter[byte] for byte in token): n for n, token in _tokens().items()}
    return {END_TEXT: vocabulary.END} | named


@cache
def _longest() -> int:
    return max(map(len, _letters()))


def byte_letters() -> list[str]:
    """The letter of every byte: printable ones are their own, the others come after U+00FF."""
    alphabet = set(pre_tokenizers.ByteLevel.alphabet())
    others = iter(sorted(letter for letter in alphabet if ord(letter) > 255))
    return [chr(byte) if chr(byte) in alphabet else next(others) for byte in range(256)]


def _backend() -> Tokenizer:
    backend = Tokenizer(models.BPE(vocab=_letters(), merges=[]))
    backend.decoder = decoders.ByteLevel()
    return backend
