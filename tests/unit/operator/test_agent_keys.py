"""From a mounted Secret to HAProxy's map."""

import hashlib
from pathlib import Path

import pytest

from rwkv_operator import agent_keys


def sha(key: bytes) -> str:
    return hashlib.sha256(key).hexdigest()


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("alice", b"", "alice: the API key is empty"),
        (
            "alice",
            b"secret\n",
            "alice: the API key ends with a line break; write it without one (printf, not echo)",
        ),
        *(
            (
                "alice",
                value,
                "alice: an API key is at most 1024 printable ASCII characters without spaces",
            )
            for value in (b"two words", b"a\nb", b"\xff", "schlüssel".encode(), b"x" * 1025, b"\0")
        ),
        *(
            (
                name,
                b"secret",
                f"{name}: a tenant's name is 1 to 63 letters, digits, _, . or -, the first no sign",
            )
            for name in (".hidden", "-x", "_x", "x" * 64)
        ),
    ],
)
def test_an_unusable_entry_is_named_and_the_others_are_in_force(
    name: str, value: bytes, problem: str
) -> None:
    keys = agent_keys.parse_keys({name: value, "bob": b"key-of-bob"})
    assert keys.errors == (problem,)
    assert keys.tenants == {sha(b"key-of-bob"): "bob"}
    assert "secret" not in str(keys)


def test_a_key_of_two_tenants_is_nobodys() -> None:
    keys = agent_keys.parse_keys({"a": b"same", "b": b"same", "c": b"other"})
    assert keys.errors == ("a, b: the same API key for several tenants",)
    assert keys.tenants == {sha(b"other"): "c"}


def test_no_key_at_all_is_said() -> None:
    assert agent_keys.parse_keys({}).errors == ("the Secret is missing or empty: nobody is let in",)


def test_the_longest_names_and_keys_are_taken() -> None:
    keys = agent_keys.parse_keys({"x" * 63: b"k" * 1024, "0": bytes(range(0x21, 0x7F))})
    assert keys.errors == ()


def test_the_map_and_its_hash_do_not_depend_on_the_order() -> None:
    first = agent_keys.parse_keys({"a": b"1", "b": b"2"})
    second = agent_keys.parse_keys({"b": b"2", "a": b"1"})
    assert first.map_text == second.map_text
    assert first.digest == second.digest != agent_keys.parse_keys({"a": b"1"}).digest
    assert f"{sha(b'1')} a\n" in first.map_text


def test_a_mounted_secret_is_read_past_the_kubelets_links(tmp_path: Path) -> None:
    data = tmp_path / "..2026_01_01"
    data.mkdir()
    (data / "alice").write_bytes(b"key")
    (tmp_path / "..data").symlink_to(data.name)
    (tmp_path / "alice").symlink_to("..data/alice")
    assert agent_keys.read_keys(tmp_path) == agent_keys.Keys({sha(b"key"): "alice"})


def test_a_missing_folder_has_no_keys(tmp_path: Path) -> None:
    assert agent_keys.read_keys(tmp_path / "none").tenants == {}


def test_the_map_is_replaced_in_one_step_and_only_when_it_differs(tmp_path: Path) -> None:
    path = tmp_path / "keys.map"
    agent_keys.write_map(path, "a b\n")
    first = path.stat()
    assert first.st_mode & 0o777 == 0o640
    agent_keys.write_map(path, "a b\n")
    assert path.stat().st_ino == first.st_ino
    agent_keys.write_map(path, "c d\n")
    assert path.read_text() == "c d\n"
    assert path.stat().st_ino != first.st_ino
    assert list(tmp_path.iterdir()) == [path]
