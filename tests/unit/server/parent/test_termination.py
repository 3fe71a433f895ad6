from __future__ import annotations

import json

import pytest

from rwkv_server.errors import EngineFailed, ModelInvalid, RuntimeMismatch
from rwkv_server.parent import termination


def test_the_words_are_the_contract():
    error = ModelInvalid("tensor x has shape [1]", found=[1], wanted=[2])
    assert json.loads(termination.build_message(error)) == {
        "reason": "ModelInvalid",
        "message": "tensor x has shape [1]",
        "found": [1],
        "wanted": [2],
    }


@pytest.mark.parametrize(
    "error",
    [
        EngineFailed("x" * 100_000),
        EngineFailed("\x00\n" * 9_000),
        EngineFailed("漢字" * 9_000),
        EngineFailed("\ud800" * 9_000),
        RuntimeMismatch("m" * 5000, found={"p": "f" * 9000}, wanted={"p": "w" * 9000}),
    ],
    ids=["ascii", "control", "wide", "surrogate", "facts"],
)
def test_long_messages_stay_json_within_the_kubelets_limit(error):
    message = termination.build_message(error)
    assert 1500 < len(message) <= 4096
    words = json.loads(message)
    assert words["reason"] == error.reason
    assert words["message"].startswith(error.message[:100].encode(errors="replace").decode())


def test_nothing_is_written_where_kubernetes_made_no_file(tmp_path):
    termination.write_message(EngineFailed("x"), tmp_path / "termination-log")
    assert list(tmp_path.iterdir()) == []


def test_the_file_is_replaced(tmp_path):
    file = tmp_path / "termination-log"
    file.write_text("old" * 1000)
    termination.write_message(EngineFailed("x"), file)
    assert json.loads(file.read_text())["message"] == "x"


def test_a_file_that_cannot_be_written_hides_no_error(tmp_path, monkeypatch):
    def refuse(path, content):
        raise OSError(30, "Read-only file system")

    file = tmp_path / "termination-log"
    file.touch()
    monkeypatch.setattr(type(file), "write_bytes", refuse)
    termination.write_message(EngineFailed("x"), file)
    assert file.read_text() == ""


def test_a_map_of_facts_stays_a_map():
    facts = {f"requirement{index}": "x" * 150 for index in range(20)}
    words = json.loads(termination.build_message(EngineFailed("x", found=facts, wanted=facts)))
    assert 3 <= len(words["found"]) < 20
    assert words["found"].items() <= facts.items()
    assert words["found"] == words["wanted"]
