"""The environment with Ascend's real packages for tests; what `make engine-env STACK=ascend` runs.

torch, torch_npu and vllm-ascend as published, without CANN, which no package index has: nothing can
be served from here. The preflight must refuse it for the right reasons, and the vendor's files fix
what our readers rely on. An image on Ascend stands on the vendor's own image instead.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import shutil
import time
from pathlib import Path

import engine_env

STACK = "ascend"
MAIN = engine_env.CONSTRAINTS / f"{STACK}.txt"
# Without dependencies: torch-npu pins torch==2.9.0+cpu, which the package index doesn't have.
VENDOR = engine_env.CONSTRAINTS / f"{STACK}-vendor.txt"
# What the image adds to the vendor's, and what only `rwkv-server fetch` sees: server.Dockerfile.
IMAGE = engine_env.CONSTRAINTS / f"{STACK}-image.txt"
HUB = engine_env.CONSTRAINTS / f"{STACK}-hub.txt"
HEAD = "# Made by `python image/ascend_env.py --lock`; install with --no-deps.\n"


def lock() -> None:
    """Write the constraint files from their `.in` files; pinned versions stay."""
    source = MAIN.with_suffix(".in").read_text()
    override = engine_env.REPO / "build" / "lock" / "ascend-override.txt"
    override.parent.mkdir(parents=True, exist_ok=True)
    override.write_text(engine_env.parse_override(source))
    options = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-annotate"]
    options += ["--no-header", "--no-emit-index-url", "--override", str(override), "--quiet"]
    for name in engine_env.LEFT_OUT:
        options += ["--no-emit-package", name]
    bare = ["--no-deps"]
    for file, more in ((MAIN, []), (VENDOR, bare), (IMAGE, bare), (HUB, [])):
        engine_env.uv("pip", "compile", *options, *more, file.with_suffix(".in"), "-o", file)
        pins = engine_env.parse_pins(file.read_text())
        file.write_text(HEAD + "".join(pin.text for pin in pins))


def install_cached(started: float) -> Path:
    """The shared environment of both files, made if absent."""
    texts = [MAIN.read_text(), VENDOR.read_text()]
    digest = hashlib.sha256("\0".join([engine_env.PYTHON, *texts]).encode()).hexdigest()[:16]
    env = engine_env.cache_root() / "engine-env" / f"{STACK}-{digest}"
    env.parent.mkdir(parents=True, exist_ok=True)
    with env.with_suffix(".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # another checkout may be at it
        if not (env / "complete").exists():
            pins = [pin for text in texts for pin in engine_env.parse_pins(text)]
            engine_env.say(started, f"installing {len(pins)} packages, about 6 GB, into {env}")
            shutil.rmtree(env, ignore_errors=True)
            engine_env.install(env, pins, None)
            (env / "complete").touch()
    return env


def main() -> None:
    """Parse the command line; make or lock the environment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--lock", action="store_true", help="write the constraint files anew")
    started = time.monotonic()
    if parser.parse_args().lock:
        lock()
    else:
        engine_env.link_checkout(STACK, install_cached(started), started)


if __name__ == "__main__":
    main()
