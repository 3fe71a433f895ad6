from __future__ import annotations

import json

import engine_config
import model_files
import pytest

from rwkv_server.__main__ import main


def test_version(capsys):
    assert main(["version"]) == 0
    assert capsys.readouterr().out.count(".") == 2


def test_check_prints_what_the_model_is(tmp_path, capsys):
    model = model_files.write_model(tmp_path / "model")
    config = engine_config.write(tmp_path / "engine.yaml", model__path=str(model))
    assert main(["check", "--config", str(config)]) == 0
    assert json.loads(capsys.readouterr().out)["vocab_size"] == 12


def test_a_failed_check_says_why_in_one_line(tmp_path, capsys):
    config = engine_config.write(tmp_path / "engine.yaml", model__path=str(tmp_path / "gone"))
    assert main(["check", "--config", str(config)]) == 66
    error = capsys.readouterr().err
    assert error.startswith("rwkv-server: ModelNotFound: there is no ")
    assert error.count("\n") == 1


def test_serve_leaves_its_last_words(tmp_path):
    last_words = tmp_path / "termination-log"
    last_words.touch()
    arguments = ["--config", str(tmp_path / "none.yaml"), "--termination-log", str(last_words)]
    assert main(["serve", *arguments]) == 64
    assert json.loads(last_words.read_text())["reason"] == "ConfigInvalid"


def test_drain_without_a_parent_is_no_failure(tmp_path, capsys):
    config = engine_config.write(tmp_path / "engine.yaml", ops__port=1)
    assert main(["drain", "--config", str(config)]) == 0
    assert "nothing to drain" in capsys.readouterr().out


def test_no_command_shows_the_usage(capsys):
    with pytest.raises(SystemExit) as caught:
        main([])
    assert caught.value.code == 2
    assert "usage: rwkv-server" in capsys.readouterr().err
