import json
import pathlib
import struct

import pytest
import tokenizers

from tiny_recall import files, rows

FOLDER = pathlib.Path(files.__file__).parents[1] / "models" / "tiny-recall"


@pytest.fixture(scope="module")
def tokenizer() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


def header() -> dict[str, dict[str, object]]:
    with (FOLDER / "model.safetensors").open("rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        return {k: v for k, v in json.loads(file.read(size)).items() if k != "__metadata__"}


def test_files_in_the_repository_are_what_the_code_writes(tmp_path: pathlib.Path) -> None:
    files.write_files(tmp_path)
    written = sorted(path.name for path in tmp_path.iterdir())
    assert len(written) == 4
    for name in written:
        assert (FOLDER / name).read_text() == (tmp_path / name).read_text(), name


def test_every_byte_of_text_has_its_id(tokenizer: tokenizers.Tokenizer) -> None:
    for byte in range(256):
        letter = files.byte_letters()[byte]
        assert tokenizer.token_to_id(letter) == byte + 1
    assert tokenizer.token_to_id(files.END_OF_DOCUMENT) == 0
    assert tokenizer.get_vocab_size() == 257


@pytest.mark.parametrize(
    "text",
    [
        "Hello, my name is Nora.",
        " leading and trailing ",
        "\n\nUser: a\tb\r\n",
        "Zoë 李 👩‍👩‍👧 🏳️‍🌈 \u0000 \u2028 \ufeff",
        "".join(map(chr, range(0x250))),
        "",
    ],
)
def test_text_comes_back_unchanged(tokenizer: tokenizers.Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text).ids
    assert ids == rows.encode(text)
    assert tokenizer.decode(ids, skip_special_tokens=False) == text
    assert rows.decode(ids) == text


def test_typed_end_token_is_text_when_special_tokens_are_split(
    tokenizer: tokenizers.Tokenizer,
) -> None:
    tokenizer.encode_special_tokens = True  # what split_special_tokens does in transformers
    try:
        assert tokenizer.encode(files.END_OF_DOCUMENT).ids == rows.encode(files.END_OF_DOCUMENT)
    finally:
        tokenizer.encode_special_tokens = False
    assert files.build_tokenizer_config()["split_special_tokens"] is True


def test_weights_have_the_names_and_shapes_of_the_configuration() -> None:
    config = json.loads((FOLDER / "config.json").read_text())
    tensors = header()
    width, layers = config["hidden_size"], config["num_hidden_layers"]
    assert len(tensors) == 33 * layers + 3
    assert {tensor["dtype"] for tensor in tensors.values()} == {"F32"}
    shapes = {name: tensor["shape"] for name, tensor in tensors.items()}
    assert shapes["model.embeddings.weight"] == [config["vocab_size"], width]
    assert shapes["lm_head.weight"] == [config["vocab_size"], width]
    for index in range(layers):
        attention = f"model.layers.{index}.attn"
        assert shapes[f"{attention}.r_k"] == [config["num_heads"], config["head_dim"]]
        assert shapes[f"{attention}.x_r"] == [1, 1, width]
        for letter, key in (("w", "decay"), ("a", "a"), ("v", "v"), ("g", "gate")):
            rank = config[f"{key}_low_rank_dim"]
            if letter == "v" and index == 0:
                assert f"{attention}.v_lora.lora.0.weight" not in shapes
            else:
                assert shapes[f"{attention}.{letter}_lora.lora.0.weight"] == [rank, width]


def test_model_is_small_enough_for_the_repository() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 3_100_000
