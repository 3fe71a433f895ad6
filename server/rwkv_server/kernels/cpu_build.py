"""Compile the C++ kernels: one shared library per instruction set that the compiler knows.

    python server/rwkv_server/kernels/cpu_build.py [--into FOLDER]

Run by path, with any Python: nothing of the package is imported, so that images and environments
can build before there is a torch. A library that was made from the present sources by the present
commands stays.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

SOURCES = Path(__file__).resolve().parent / "cpp"
LIBRARIES = SOURCES / "lib"
# No contraction of a * b + c, so that sums don't depend on how a template was inlined. GCC's own
# vector headers use a variable before it's set, on purpose.
FLAGS = (
    "-std=c++17 -O3 -fPIC -shared -pthread -ffp-contract=off -fvisibility=hidden"
    " -static-libstdc++ -static-libgcc -Wall -Wextra -Wno-uninitialized -Wno-maybe-uninitialized"
).split()


@dataclass(frozen=True)
class Target:
    """One instruction set: the compiler's flags for it, and what the machine has to answer for."""

    name: str
    machine: str
    flags: tuple[str, ...]
    needs: str


AVX512 = tuple(f"-mavx512{part}" for part in ("f", "bw", "vl", "dq", "bf16", "vnni"))
# Best first.
TARGETS = (
    Target("avx512", "x86_64", (*AVX512, "-mfma", "-mf16c"), "NEEDS_AVX512"),
    Target("avx2", "x86_64", ("-mavx2", "-mfma", "-mf16c"), "NEEDS_AVX2"),
    Target("neon", "aarch64", (), "NEEDS_NEON"),
)


def source_digest(folder: Path = SOURCES) -> str:
    """16 hex digits over the C++ sources, which every library carries."""
    digest = hashlib.sha256()
    for path in sorted((*folder.glob("*.h"), *folder.glob("*.cpp"))):
        digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def library_path(folder: Path, target: Target) -> Path:
    """Where a target's library lies."""
    return folder / f"librwkv-{target.name}.so"


def commands(compiler: str, target: Target, folder: Path) -> list[list[str]]:
    """What compiles one target: the test of the machine without its flags, then all else."""
    check = str(library_path(folder, target).with_suffix(".o"))
    partial = str(library_path(folder, target).with_suffix(".partial"))
    digest = f'-DRWKV_SOURCE="{source_digest()}"'
    supported = [f"-D{target.needs}", digest, "-c", str(SOURCES / "supported.cpp"), "-o", check]
    whole = [*target.flags, str(SOURCES / "api.cpp"), check, "-o", partial]
    compile_only = [flag for flag in FLAGS if flag != "-shared" and not flag.startswith("-static")]
    return [[compiler, *compile_only, *supported], [compiler, *FLAGS, *whole]]


def build(target: Target, compiler: str, folder: Path) -> bool:
    """Make a target's library; False where it's there already.

    Raises:
        SystemExit: with the compiler's words.
    """
    lines = commands(compiler, target, folder)
    stamp = library_path(folder, target).with_suffix(".made")
    made = repr(lines)
    if library_path(folder, target).exists() and stamp.exists() and stamp.read_text() == made:
        return False
    for line in lines:
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"kernels: {' '.join(line)} failed:\n{done.stderr}")
    library_path(folder, target).with_suffix(".o").unlink()
    library_path(folder, target).with_suffix(".partial").replace(library_path(folder, target))
    stamp.write_text(made)
    return True


def main() -> None:
    """Build what this machine's compiler can build for it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--into", type=Path, default=LIBRARIES, help="default: %(default)s")
    parser.add_argument("--machine", default=platform.machine(), help="default: %(default)s")
    parser.add_argument("--compiler", default=os.environ.get("CXX", "g++"))
    args = parser.parse_args()
    compiler = shutil.which(args.compiler)
    if compiler is None:
        raise SystemExit(f"kernels: no {args.compiler}: apt-get install g++")
    started = time.monotonic()
    args.into.mkdir(parents=True, exist_ok=True)
    chosen = [target for target in TARGETS if target.machine == args.machine]
    # Another build into the same folder waits, and then finds all up to date.
    with (args.into / "lock").open("w") as lock, ThreadPoolExecutor() as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        made = list(pool.map(lambda target: build(target, compiler, args.into), chosen))
    for target, new in zip(chosen, made, strict=True):
        word = "built" if new else "up to date"
        print(f"kernels: {library_path(args.into, target)}: {word}")
    if not chosen:
        print(f"kernels: none for {args.machine}, torch is used", file=sys.stderr)
    print(f"kernels: {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    main()
