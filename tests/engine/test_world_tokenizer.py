"""The World tokenizer against the official one of PyPI `rwkv`: vocabulary, numbers and text."""

from __future__ import annotations

import itertools
from importlib import util
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

PLANES = [
    (0x0, 0x80), (0x80, 0x800), (0x800, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000),
    (0x20000, 0x30000), (0x30000, 0x40000), (0xE0000, 0xF0000), (0xF0000, 0x110000),
]  # fmt: skip
PARTS = ["\n\n", "User:", "Assistant:", " ", "  ", "\u200d", "👩",
         "👩‍👩‍👧‍👦", "é", "e\u0301", "你好",
         "def f(x):\n    return x", "<|rwkv_tokenizer_end_of_text|>", "\ufffd", "\0"]  # fmt: skip
CHARS = st.one_of([st.characters(min_codepoint=a, max_codepoint=b - 1) for a, b in PLANES])
TEXTS = st.lists(CHARS | st.sampled_from(PARTS), max_size=40).map("".join)


@pytest.fixture(scope="module")
def official():
    from rwkv.rwkv_tokenizer import TRIE_TOKENIZER

    package = Path(util.find_spec("rwkv").origin).parent
    return TRIE_TOKENIZER(package / "rwkv_vocab_v20230424.txt")


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    from rwkv_server.tokenizer.world import WorldTokenizer

    return WorldTokenizer.from_pretrained(tmp_path_factory.mktemp("model"))


def stream(world, ids):
    """The text as vLLM streams it, a token at a time."""
    from tokenizers.decoders import DecodeStream

    decoder = DecodeStream(skip_special_tokens=True)
    return "".join(decoder.step(world.backend_tokenizer, number) or "" for number in ids)


def test_the_vocabulary_is_the_official_one(world, official):
    from rwkv_server.tokenizer import vocabulary

    assert vocabulary.read_tokens(vocabulary.find_file()) == official.idx2token
    assert len(world.get_vocab()) == len(official.idx2token) + 1
    assert world.eos_token_id == 0


def test_every_character_of_every_plane(world, official):
    for first, end in PLANES:
        for start in range(first, end, 4096):
            text = " ".join(map(chr, range(start, min(start + 4096, end), 7)))
            assert world.encode(text) == official.encode(text)
            assert world.decode(world.encode(text)) == text


@given(TEXTS)
def test_any_text(world, official, text):
    ids = world.encode(text)
    assert ids == official.encode(text)
    assert world.decode(ids) == text
    # A replacement character at the end may still become another.
    assert stream(world, world.encode(text + ".")) == text + "."
    assert world.convert_tokens_to_string(world.tokenize(text)) == text


@given(st.binary(max_size=60))
def test_bytes_that_are_no_text_come_out_as_replacements(world, official, content):
    ids = official.encodeBytes(content)
    assert world.decode(ids) == content.decode("utf-8", "replace")


@given(TEXTS, st.integers(0, 40))
def test_a_stream_that_is_cut_anywhere_has_every_whole_character(world, text, count):
    ids = world.encode(text)[:count]
    whole, streamed = world.decode(ids), stream(world, ids)
    assert whole.startswith(streamed)
    assert text.startswith(streamed)
    rest = whole[len(streamed) :]
    assert rest == "" or rest.endswith("\ufffd")


@settings(deadline=None, max_examples=5)
@given(st.lists(CHARS | st.sampled_from(PARTS), min_size=5, max_size=50).map("".join))
def test_a_megabyte(world, official, text):
    big = text * (1_000_000 // len(text.encode()) + 1)
    assert world.encode(big) == official.encode(big)


@given(TEXTS)
def test_spans_cover_the_text(world, text):
    encoded = world(text, return_offsets_mapping=True)
    spans = encoded["offset_mapping"]
    assert len(spans) == len(encoded["input_ids"])
    assert not text or (spans[0][0], spans[-1][1]) == (0, len(text))
    for (_, end), (start, _) in itertools.pairwise(spans):
        assert start in (end, end - 1)


@pytest.mark.parametrize(("side", "kept"), [("left", [3, 4]), ("right", [1, 2])])
def test_truncation(tmp_path, side, kept):
    from rwkv_server.tokenizer.world import WorldTokenizer

    tokenizer = WorldTokenizer.from_pretrained(tmp_path, truncation_side=side)
    text = "\x00\x01\x02\x03"
    encoded = tokenizer(text, truncation=True, max_length=2, return_offsets_mapping=True)
    assert encoded["input_ids"] == kept
    assert encoded["offset_mapping"] == [(number - 1, number) for number in kept]
    assert tokenizer([text, "a"])["input_ids"] == [[1, 2, 3, 4], [98]]


def test_a_models_own_template_comes_first(tmp_path):
    from rwkv_server.tokenizer.world import WorldTokenizer

    (tmp_path / "chat_template.jinja").write_text("{{ messages[0].content }}!")
    tokenizer = WorldTokenizer.from_pretrained(tmp_path)
    chat = [{"role": "user", "content": "Hi"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False) == "Hi!"


def test_a_prompt_in_the_world_format_has_its_tokens(world):
    chat = [{"role": "user", "content": "Hi"}]
    options = {"tokenize": True, "add_generation_prompt": True, "return_dict": False}
    ids = world.apply_chat_template(chat, **options)
    assert [world.decode([number]) for number in ids] == [
        "User", ":", " Hi", "\n\n", "Ass", "istant", ":"
    ]  # fmt: skip


def test_grammars_see_every_tokens_bytes(world, official):
    import xgrammar

    known = xgrammar.TokenizerInfo.from_huggingface(world, vocab_size=65536)
    decoded = known.decoded_vocab
    for number in (*range(1, 257), *range(257, 65530, 37)):
        assert decoded[number] == official.idx2token[number]
    assert list(known.stop_token_ids) == [0]
