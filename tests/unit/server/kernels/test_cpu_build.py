"""The build of the C++ kernels: what a library is made from, and when it's made again."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rwkv_server.kernels import cpu_build


def test_the_digest_follows_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("int a;")
    first = cpu_build.source_digest(tmp_path)
    (tmp_path / "notes.txt").write_text("no source")
    assert cpu_build.source_digest(tmp_path) == first
    (tmp_path / "a.h").write_text("int b;")
    second = cpu_build.source_digest(tmp_path)
    (tmp_path / "a.h").rename(tmp_path / "b.h")
    assert len({first, second, cpu_build.source_digest(tmp_path)}) == 3


@pytest.mark.parametrize("target", cpu_build.TARGETS, ids=lambda target: target.name)
def test_the_question_for_the_machine_is_compiled_without_its_instructions(
    target: cpu_build.Target, tmp_path: Path
) -> None:
    question, library = cpu_build.commands("g++", target, tmp_path)
    assert not [word for word in question if word.startswith("-m")]
    assert [word for word in library if word.startswith("-m")] == list(target.flags)
    for line in (question, library):
        assert "-march=native" not in line
        assert "-ffast-math" not in line


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(Path(cpu_build.__file__)), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_without_a_compiler_the_user_is_told_what_to_install(tmp_path: Path) -> None:
    done = run("--into", tmp_path, "--compiler", "no-such-compiler")
    assert done.returncode == 1
    assert done.stderr == "kernels: no no-such-compiler: apt-get install g++\n"


def test_a_machine_without_kernels_is_no_failure(tmp_path: Path) -> None:
    done = run("--into", tmp_path, "--machine", "riscv64")
    assert done.returncode == 0
    assert "none for riscv64, torch is used" in done.stderr


def test_a_library_that_is_up_to_date_stays(tmp_path: Path) -> None:
    made = [target for target in cpu_build.TARGETS if target.machine == platform.machine()]
    # The real compiler in a quarter of the time.
    hasty = tmp_path / "hasty"
    hasty.write_text('#!/bin/sh\nexec g++ "$@" -O0\n')
    hasty.chmod(0o755)
    order = ("--into", tmp_path, "--compiler", hasty)
    # Two at once: one waits for the other, and then has nothing to do.
    with ThreadPoolExecutor() as pool:
        both = list(pool.map(lambda _: run(*order), range(2)))
    assert [done.returncode for done in both] == [0, 0], both
    assert sorted(done.stdout.count(": built\n") for done in both) == [0, len(made)]
    again = run(*order)
    assert again.stdout.count(": up to date\n") == len(made)
    cpu_build.library_path(tmp_path, made[-1]).unlink()
    assert run(*order).stdout.count(": built\n") == 1


@pytest.mark.long
def test_the_arm_library_compiles(tmp_path: Path) -> None:
    compiler = "aarch64-linux-gnu-g++"
    if shutil.which(compiler) is None:
        pytest.skip("needs apt-get install g++-aarch64-linux-gnu")
    done = run("--into", tmp_path, "--machine", "aarch64", "--compiler", compiler)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "librwkv-neon.so").read_bytes()[:4] == b"\x7fELF"
