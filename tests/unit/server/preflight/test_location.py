from __future__ import annotations

import pytest

from rwkv_server.errors import ModelInvalid, ModelNotFound
from rwkv_server.preflight import location

BOTH = ["a.pth", "model.safetensors"]


def folder(path, names):
    path.mkdir()
    for name in names:
        (path / name).write_bytes(b"")
    return path


@pytest.mark.parametrize(
    ("names", "wanted", "files", "found"),
    [
        (["model.safetensors"], "Auto", [], ("SafeTensors", None)),
        (["a.safetensors", "b.safetensors"], "SafeTensors", [], ("SafeTensors", None)),
        (["a.pth"], "Auto", [], ("PTH", "a.pth")),
        (["a.pth", "config.json"], "PTH", [], ("PTH", "a.pth")),
        (BOTH, "PTH", [], ("PTH", "a.pth")),
        (BOTH, "SafeTensors", [], ("SafeTensors", None)),
        (["a.pth", "b.pth"], "Auto", ["b.pth"], ("PTH", "b.pth")),
        (["a.pth", "initial_state.pth"], "Auto", [], ("PTH", "a.pth")),
    ],
)
def test_which_format_is_found(tmp_path, names, wanted, files, found):
    path = folder(tmp_path / "m", names)
    place = location.find_model(path, wanted, files)
    assert (place.format, place.pth and place.pth.name) == found
    assert place.folder == path


@pytest.mark.parametrize(
    ("names", "wanted", "words"),
    [
        ([], "Auto", "holds no weights"),
        (["config.json"], "PTH", "holds no weights"),
        (BOTH, "Auto", "holds both model.safetensors and a.pth: set spec.model.format"),
        (["a.pth"], "SafeTensors", "no .safetensors file, only a.pth"),
        (["model.safetensors"], "PTH", "0 .pth files, wanted one"),
        (["a.pth", "b.pth"], "Auto", "2 .pth files, wanted one"),
        (["model.safetensors", "initial_state.pth"], "Auto", "put it beside the model's .pth"),
    ],
)
def test_what_cant_be_served(tmp_path, names, wanted, words):
    with pytest.raises(ModelInvalid, match=words):
        location.find_model(folder(tmp_path / "m", names), wanted)


def test_a_checkpoint_itself_is_a_place(tmp_path):
    path = folder(tmp_path / "m", ["a.pth", "b.pth"])
    assert location.find_model(path / "b.pth", "Auto").pth == path / "b.pth"
    with pytest.raises(ModelInvalid, match=r"is a file, wanted a folder with config.json$"):
        location.find_model(path / "b.pth", "SafeTensors")


def test_another_file_and_nothing(tmp_path):
    (tmp_path / "model").write_text("")
    with pytest.raises(ModelInvalid, match="is a file"):
        location.find_model(tmp_path / "model", "Auto")
    with pytest.raises(ModelNotFound, match="there is no"):
        location.find_model(tmp_path / "gone", "Auto")
