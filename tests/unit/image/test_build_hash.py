"""The tag of an image: what changes it, what doesn't."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import build

IMAGE = build.Image("thing", ("pyproject.toml", "code"), {})


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A work tree with one image."""
    (tmp_path / "image").mkdir()
    (tmp_path / "image" / "thing.Dockerfile").write_text("FROM scratch\nCOPY code /code\n")
    (tmp_path / "pyproject.toml").write_text("[project]\n")
    (tmp_path / "code" / "inner").mkdir(parents=True)
    (tmp_path / "code" / "a.py").write_text("a = 1\n")
    (tmp_path / "code" / "inner" / "b.py").write_text("b = 2\n")
    return tmp_path


def tag(tree: Path, **settings: str) -> str:
    return build.content_hash(tree, IMAGE, settings)


def test_a_tag_is_twelve_hex_digits_and_the_same_each_time(tree: Path) -> None:
    assert len(tag(tree)) == 12
    assert int(tag(tree), 16)
    assert tag(tree) == tag(tree)


@pytest.mark.parametrize(
    "name", ["image/thing.Dockerfile", "pyproject.toml", "code/a.py", "code/inner/b.py"]
)
def test_each_input_changes_the_tag(tree: Path, name: str) -> None:
    before = tag(tree)
    path = tree / name
    path.write_text(path.read_text() + "# more\n")
    assert tag(tree) != before


def test_a_new_a_moved_and_an_executable_file_change_the_tag(tree: Path) -> None:
    seen = {tag(tree)}
    (tree / "code" / "c.py").write_text("")
    seen.add(tag(tree))
    (tree / "code" / "c.py").rename(tree / "code" / "d.py")
    seen.add(tag(tree))
    os.chmod(tree / "code" / "d.py", 0o755)
    seen.add(tag(tree))
    assert len(seen) == 4


def test_build_arguments_change_the_tag(tree: Path) -> None:
    assert len({tag(tree), tag(tree, BASE="a:1"), tag(tree, BASE="a:2")}) == 3


def test_what_running_and_other_images_leave_does_not_change_the_tag(tree: Path) -> None:
    before = tag(tree)
    (tree / "code" / "__pycache__").mkdir()
    (tree / "code" / "__pycache__" / "a.cpython-311.pyc").write_bytes(b"\0")
    (tree / "code" / "thing.egg-info").mkdir()
    (tree / "code" / "thing.egg-info" / "PKG-INFO").write_text("x")
    (tree / "image" / "other.Dockerfile").write_text("FROM scratch\n")
    (tree / "README.md").write_text("hello\n")
    os.utime(tree / "code" / "a.py", (0, 0))
    assert tag(tree) == before


def test_a_missing_input_folder_counts_as_empty(tree: Path) -> None:
    with_absent = build.Image("thing", (*IMAGE.copied, "image/router"), {})
    assert build.content_hash(tree, with_absent, {}) == tag(tree)
