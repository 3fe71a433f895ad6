"""The model folder's small files: tokenizer, configuration, chat template, sampling defaults."""

import json
import pathlib
from typing import Any

from tiny_recall import chat

END_OF_DOCUMENT = "<|endoftext|>"
LINE_END = 11  # the id of "\n": a reply is one line


def write_files(folder: pathlib.Path) -> None:
    """Write everything but the weights and the model card."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in {
        "config.json": build_config(),
        "generation_config.json": build_generation_config(),
        "tokenizer.json": build_tokenizer(),
        "tokenizer_config.json": build_tokenizer_config(),
    }.items():
        text = json.dumps(content, indent=2, ensure_ascii=False)
        (folder / name).write_text(text + "\n", encoding="utf-8")


def build_config() -> dict[str, Any]:
    """Return config.json in the names of fla's RWKV-7; sizes are those of ``model.Shape``."""
    return {
        "architectures": ["RWKV7ForCausalLM"],
        "model_type": "rwkv7",
        "attn": None,
        "attn_mode": "chunk",
        "hidden_size": 128,
        "hidden_ratio": 4.0,
        "intermediate_size": 512,
        "num_hidden_layers": 3,
        "head_dim": 64,
        "num_heads": 2,
        "decay_low_rank_dim": 16,
        "a_low_rank_dim": 16,
        "v_low_rank_dim": 16,
        "gate_low_rank_dim": 32,
        "value_dim": [128, 128, 128],
        "hidden_act": "sqrelu",
        "norm_first": True,
        "norm_bias": True,
        "norm_eps": 1e-5,
        "fuse_norm": False,
        "initializer_range": 0.02,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": False,
        "use_cache": True,
        "vocab_size": 320,
        "bos_token_id": 0,
        "eos_token_id": 0,
        "torch_dtype": "float32",
    }


def build_generation_config() -> dict[str, Any]:
    """Return generation_config.json: stops, and sampling for clients that name none."""
    return {
        "bos_token_id": 0,
        "eos_token_id": [0, LINE_END],
        "do_sample": True,
        "temperature": 0.3,
        "top_p": 0.3,
    }


def build_tokenizer() -> dict[str, Any]:
    """Return tokenizer.json: byte-level BPE without merges, byte ``b`` is id ``b + 1``."""
    vocabulary = {END_OF_DOCUMENT: 0}
    vocabulary.update({letter: byte + 1 for byte, letter in enumerate(byte_letters())})
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": 0,
                "content": END_OF_DOCUMENT,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
        "normalizer": None,
        "pre_tokenizer": {**byte_level, "use_regex": False},
        "post_processor": None,
        "decoder": {**byte_level, "use_regex": False},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": [],
        },
    }


def build_tokenizer_config() -> dict[str, Any]:
    """Return tokenizer_config.json; a user who types the end token's name sends plain text."""
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_DOCUMENT,
        "pad_token": END_OF_DOCUMENT,
        "bos_token": None,
        "unk_token": None,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "split_special_tokens": True,
        "chat_template": chat.TEMPLATE.read_text(),
    }


def byte_letters() -> list[str]:
    """Return the printable letter that byte-level BPE writes for each byte, 0 to 255."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    letters, spare = [], 256
    for byte in range(256):
        letters.append(chr(byte if byte in printable else spare))
        spare += byte not in printable
    return letters
