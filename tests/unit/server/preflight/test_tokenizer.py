"""Which models get the World tokenizer, and which are refused."""

from __future__ import annotations

import shutil

import model_files
import pytest

from rwkv_server.errors import ModelInvalid
from rwkv_server.preflight.tokenizer import check_tokenizer
from rwkv_server.tokenizer import vocabulary

NAME = "rwkv_vocab_v20230424.txt"


def test_a_tokenizer_of_its_own_comes_first(tmp_path):
    model_files.write_tokenizer(tmp_path, largest=11)
    shutil.copy(vocabulary.find_file(), tmp_path)
    assert check_tokenizer(tmp_path, 65536) is False


def test_the_vocabularys_size_is_enough(tmp_path):
    (tmp_path / "hf_rwkv_tokenizer.py").write_text("raise SystemExit('never run')")
    assert check_tokenizer(tmp_path, 65536) is True


@pytest.mark.parametrize("size", [65530, 65536, 70000])
def test_so_is_the_vocabulary_itself(tmp_path, size):
    shutil.copy(vocabulary.find_file(), tmp_path)
    assert check_tokenizer(tmp_path, size) is True


@pytest.mark.parametrize("size", [320, 50277, 65529, 65537])
def test_other_sizes_are_refused(tmp_path, size):
    with pytest.raises(ModelInvalid, match="has no tokenizer") as caught:
        check_tokenizer(tmp_path, size)
    assert caught.value.found == size


def test_another_vocabulary_is_refused(tmp_path):
    (tmp_path / NAME).write_text("1 'a' 1\n")
    with pytest.raises(ModelInvalid, match="is not the World vocabulary"):
        check_tokenizer(tmp_path, 65536)


def test_a_vocabulary_larger_than_the_model_is_refused(tmp_path):
    shutil.copy(vocabulary.find_file(), tmp_path)
    with pytest.raises(ModelInvalid, match="token id 65529 is outside"):
        check_tokenizer(tmp_path, 65529)
