"""Triton in a folder of its own, for the tests of the GPU kernels on machines without a GPU.

It isn't part of the engine environment: vLLM chooses other code where it finds Triton, and the CPU
engine's image would carry 0.7 GB for nothing. Tests put the folder on PYTHONPATH, in processes that
run kernels in Triton's interpreter or compile them for the chips that we name.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import shutil
import sys
import time
from pathlib import Path

import engine_env

NAME = "triton"
PINS = engine_env.CONSTRAINTS / f"{NAME}-test.txt"
HEAD = "# Made by `python image/triton_env.py --lock`; install with --no-deps.\n"
LINK = engine_env.REPO / "build" / "engine-env" / NAME


def lock() -> None:
    """Write the constraint file from its `.in` file."""
    options = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-annotate"]
    options += ["--no-header", "--no-emit-index-url", "--no-deps", "--quiet"]
    engine_env.uv("pip", "compile", *options, PINS.with_suffix(".in"), "-o", PINS)
    pins = engine_env.parse_pins(PINS.read_text())
    PINS.write_text(HEAD + "".join(pin.text for pin in pins))


def install_cached(started: float) -> Path:
    """The shared folder with exactly the pinned packages, made if absent."""
    digest = hashlib.sha256((engine_env.PYTHON + PINS.read_text()).encode()).hexdigest()[:16]
    folder = engine_env.cache_root() / "engine-env" / f"{NAME}-{digest}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # another checkout may be at it
        if not (folder / "complete").exists():
            engine_env.say(started, f"installing Triton, about 0.7 GB, into {folder}")
            shutil.rmtree(folder, ignore_errors=True)
            options = ("--python", sys.executable, "--require-hashes", "--no-deps")
            engine_env.uv("pip", "install", *options, "--target", folder, "-r", PINS)
            (folder / "complete").touch()
    return folder


def main() -> None:
    """Parse the command line; make or lock the folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lock", action="store_true", help="write the constraint file anew")
    started = time.monotonic()
    if parser.parse_args().lock:
        lock()
        return
    folder = install_cached(started)
    LINK.parent.mkdir(parents=True, exist_ok=True)
    LINK.unlink(missing_ok=True)
    LINK.symlink_to(folder)
    engine_env.say(started, f"ready: {LINK.relative_to(engine_env.REPO)}")


if __name__ == "__main__":
    main()
