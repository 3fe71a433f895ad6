from __future__ import annotations

from rwkv_server.tokenizer import vocabulary


def test_every_token_of_the_vocabulary_is_there():
    tokens = vocabulary.read_tokens(vocabulary.find_file())
    assert list(tokens) == list(range(1, vocabulary.LARGEST + 1))
    assert len(set(tokens.values())) == vocabulary.LARGEST
    assert [tokens[byte + 1] for byte in range(256)] == [bytes([byte]) for byte in range(256)]
    assert (tokens[261], tokens[24281], tokens[33155]) == (b"\n\n", b"User", b"Hello")


def test_lengths_are_those_that_the_file_says():
    tokens = vocabulary.read_tokens(vocabulary.find_file())
    lines = vocabulary.find_file().read_text().splitlines()
    assert [int(line.rpartition(" ")[2]) for line in lines] == [len(t) for t in tokens.values()]


def test_line_endings_dont_make_another_vocabulary(tmp_path):
    path = tmp_path / "vocabulary"
    content = vocabulary.find_file().read_bytes()
    path.write_bytes(content.replace(b"\n", b"\r\n"))
    assert vocabulary.is_world(path)
    path.write_bytes(content.replace(b"Hello", b"hello"))
    assert not vocabulary.is_world(path)
