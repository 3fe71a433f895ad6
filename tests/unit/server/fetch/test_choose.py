from __future__ import annotations

import pytest

from rwkv_server.errors import ModelInvalid
from rwkv_server.fetch.choose import choose_files
from rwkv_server.fetch.hub import RemoteFile

VOCABULARY = "rwkv_vocab_v20230424.txt"
SIDE = ["config.json", "tokenizer.json"]
ONE = "model.safetensors"
SHARDS = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
INDEX = "model.safetensors.index.json"


def chosen(names, wanted="Auto", files=()):
    listing = [RemoteFile(name, 10, "") for name in names]
    return {file.name for file in choose_files(listing, wanted, list(files), "hub org/m@main")}


@pytest.mark.parametrize(
    ("names", "wanted", "files", "found"),
    [
        ([ONE, *SIDE], "Auto", [], [ONE, *SIDE]),
        ([*SHARDS, INDEX, *SIDE], "SafeTensors", [], [*SHARDS, INDEX, *SIDE]),
        ([ONE, *SHARDS, INDEX, *SIDE], "Auto", [], [ONE, *SIDE]),
        ([*SHARDS, "adapter.safetensors", *SIDE], "Auto", [], [*SHARDS, *SIDE]),
        (["weights.safetensors", *SIDE], "Auto", [], ["weights.safetensors", *SIDE]),
        (["a.pth", "tokenizer.json"], "Auto", [], ["a.pth", "tokenizer.json"]),
        (["a.pth", "README.md"], "Auto", [], ["a.pth"]),
        (["a.pth", "initial_state.pth"], "Auto", [], ["a.pth", "initial_state.pth"]),
        ([ONE, "config.json", VOCABULARY], "Auto", [], ["config.json", VOCABULARY, ONE]),
        (["a.pth", "b.pth", *SIDE], "Auto", ["b.pth"], ["b.pth", *SIDE]),
        (["a.pth", ONE, *SIDE], "PTH", [], ["a.pth", *SIDE]),
        (["a.pth", ONE, *SIDE], "SafeTensors", [], [ONE, *SIDE]),
        (["a.pth", ONE, *SIDE], "Auto", ["a.pth"], ["a.pth", *SIDE]),
        (["a.pth", ONE, *SIDE], "Auto", [ONE], [ONE, *SIDE]),
        (
            ["alt.safetensors", *SHARDS, INDEX, *SIDE],
            "Auto",
            ["alt.safetensors"],
            ["alt.safetensors", *SIDE],
        ),
        (["alt.safetensors", *SHARDS, INDEX, *SIDE], "Auto", SHARDS, [*SHARDS, INDEX, *SIDE]),
        (
            ["a.safetensors", "b.safetensors", INDEX, *SIDE],
            "Auto",
            [],
            ["a.safetensors", "b.safetensors", INDEX, *SIDE],
        ),
    ],
)
def test_what_is_chosen(names, wanted, files, found):
    assert chosen(names, wanted, files) == set(found)


@pytest.mark.parametrize(
    "name",
    ["modeling_rwkv7.py", "hf_rwkv_tokenizer.py", "README.md", ".gitattributes",
     "pytorch_model.bin", "fp16/model.safetensors", "../model.safetensors",
     "/etc/x.safetensors", "-x.safetensors",
     "run.sh", "rwkv_vocab_v20240101.txt"],
)  # fmt: skip
def test_what_never_is(name):
    assert name not in chosen([name, ONE, *SIDE])


@pytest.mark.parametrize(
    ("names", "wanted", "files", "words"),
    [
        (SIDE, "Auto", [], "hub org/m@main holds no weights"),
        (["pytorch_model.bin", *SIDE], "Auto", [], "holds no weights"),
        (["fp16/model.safetensors", *SIDE], "Auto", [], "holds no weights"),
        ([ONE, "a.pth", *SIDE], "Auto", [], "holds both model.safetensors and a.pth"),
        (["a.pth", "b.pth", *SIDE], "Auto", [], "2 .pth files, wanted one"),
        ([ONE, "tokenizer.json"], "Auto", [], "has no config.json"),
        ([ONE, *SIDE], "Auto", ["b.pth"], "has no file b.pth at its root"),
        ([ONE, "x.py", *SIDE], "Auto", ["x.py"], "files names x.py, which holds no weights"),
        ([ONE, "merges.txt", *SIDE], "Auto", ["merges.txt"], "files names merges.txt"),
        ([ONE, "alt.safetensors", *SIDE], "Auto", [ONE, "alt.safetensors"], "one model's"),
        (["a.pth", *SIDE], "SafeTensors", [], "no .safetensors file, only a.pth"),
    ],
)
def test_what_is_refused_before_a_byte_comes(names, wanted, files, words):
    with pytest.raises(ModelInvalid, match=words):
        chosen(names, wanted, files)


def test_small_files_come_first():
    listing = [RemoteFile(ONE, 999, ""), RemoteFile("config.json", 9, ""),
               RemoteFile("tokenizer.json", 99, "")]  # fmt: skip
    names = [file.name for file in choose_files(listing, "Auto", [], "hub")]
    assert names == ["config.json", "tokenizer.json", ONE]
