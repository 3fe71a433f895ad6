from __future__ import annotations

import json

import model_files
import pth_file
import pytest
from safetensors.numpy import save_file

from rwkv_server.__main__ import main
from rwkv_server.inspection import inspect, report


@pytest.fixture
def path(tmp_path):
    folder = model_files.write_model(tmp_path / "model")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


def test_a_good_model(path, capsys):
    assert main(["inspect", str(path)]) == 0
    shown = capsys.readouterr().out
    for words in (
        "SafeTensors", "2\n", "64, 1 heads of 64", "float32", "tokenizer.json",
        "chat_template.jinja", "bytes of state per session", "no problems found",
    ):  # fmt: skip
        assert words in shown


def test_json_has_stable_names(path, capsys):
    assert main(["inspect", str(path), "--json", "--sessions", "4"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["format"] == "SafeTensors"
    assert found["config"]["num_hidden_layers"] == 2
    assert found["stateBytes"]["float32"] == 2 * (64 * 64 + 2 * 64) * 4
    states = 5 * found["stateBytes"]["float32"]
    base = inspect.BASE_BYTES
    assert found["memoryBytes"]["float32"] == found["parameters"] * 4 + states + base
    assert found["problems"] == []


def test_everything_that_is_wrong_is_told(path):
    (path / "chat_template.jinja").unlink()
    (path / "tokenizer.json").unlink()
    tensors = model_files.tensors()
    del tensors["model.norm.bias"]
    tensors["extra"] = tensors["model.norm.weight"]
    tensors["lm_head.weight"] = tensors["lm_head.weight"].astype("int8")
    save_file(tensors, path / "model.safetensors")
    problems = "\n".join(inspect.inspect_model(path).problems)
    for words in (
        "tensor model.norm.bias is missing",
        "tensor extra is not part of an RWKV-7",
        "tensor lm_head.weight is stored as I8",
        "has no tokenizer.json",
        "has no chat template",
    ):
        assert words in problems


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: (path / "config.json").write_text("{"), "config.json is not JSON"),
        (lambda path: (path / "model.safetensors").write_bytes(b"x"), "not a safetensors file"),
        (lambda path: (path / "model.safetensors").unlink(), "holds no weights"),
        (lambda path: (path / "a.pth").write_bytes(b""), "holds both"),
    ],
)
def test_a_broken_part_doesnt_hide_the_rest(path, spoil, words):
    spoil(path)
    (path / "tokenizer.json").unlink()
    found = inspect.inspect_model(path)
    assert any(words in problem for problem in found.problems)
    told = any("has no tokenizer.json" in problem for problem in found.problems)
    # Whether a model needs one depends on its config.
    assert told == (found.config is not None)
    assert report.render(found).count("\n- ") == len(found.problems)


def test_a_world_model_has_the_template_that_will_be_used(tmp_path):
    (tmp_path / "chat_template.json").write_text("{}")
    assert inspect.inspect_model(tmp_path).template == "World, from the server"
    (tmp_path / "chat_template.jinja").write_text("x")
    assert inspect.inspect_model(tmp_path).template == "chat_template.jinja"


def test_nothing_there(tmp_path, capsys):
    assert main(["inspect", str(tmp_path / "gone")]) == 65
    shown = capsys.readouterr().out
    assert "1 problem(s)" in shown
    assert "there is no " in shown


def test_a_checkpoint_is_described_without_being_converted(tmp_path, capsys):
    model_files.write_tokenizer(tmp_path, largest=11)
    (tmp_path / "chat_template.jinja").write_text("x")
    pth = pth_file.write(tmp_path / "a.pth", pth_file.official_tensors("float16"))
    assert main(["inspect", str(pth), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    wanted = sum(tensor.size for tensor in model_files.tensors().values())
    assert (found["format"], found["dtype"], found["parameters"]) == ("PTH", "float16", wanted)
    assert not (tmp_path / ".rwkv-converted").exists()


def test_a_bad_checkpoint_names_its_tensors(tmp_path):
    tensors = pth_file.official_tensors()
    tensors["surprise"] = tensors.pop("ln_out.bias")
    pth_file.write(tmp_path / "a.pth", tensors)
    problems = "\n".join(inspect.inspect_model(tmp_path).problems)
    assert "tensor surprise is not part of an RWKV-7" in problems
    assert "tensor model.norm.bias is missing" in problems


def test_convert_and_its_word(tmp_path, capsys):
    source = tmp_path / "official"
    source.mkdir()
    model_files.write_tokenizer(source, largest=11)
    pth_file.write(source / "a.pth", pth_file.official_tensors())
    assert main(["convert", str(source), str(tmp_path / "out")]) == 0
    assert "sha256sum --check" in capsys.readouterr().out
    assert main(["convert", str(source), str(tmp_path / "out")]) == 65
    assert "exists already" in capsys.readouterr().err
