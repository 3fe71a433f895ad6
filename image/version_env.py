"""Environments with other vLLM versions than the engine image's; `make test-matrix` runs in them.

`make engine-env STACK=cpu-0.18` comes here. A file of its own, because `engine_env.py` goes into
the engine's image, which needs no new layer when a test wants another version.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import engine_env

# vLLM 0.18 is the one that Ascend's own plugin of that version goes with.
STACKS = ("cpu-0.18",)
HEAD = "# Made by `python image/version_env.py {stack} --lock`; install with --no-deps.\n"


def lock(stack: str, upgrade: bool) -> None:
    """Write the stack's constraint files; versions that are pinned already stay, unless told."""
    engine_env.lock(stack, engine_env.REPO / "build" / "lock", upgrade)
    for part in ("", "-test"):
        file = engine_env.CONSTRAINTS / f"{stack}{part}.txt"
        _, _, pins = file.read_text().partition("\n")
        file.write_text(HEAD.format(stack=stack) + pins)


def make(stack: str) -> Path:
    """The checkout's environment of one version, installed if need be."""
    started = time.monotonic()
    return engine_env.link_checkout(stack, engine_env.install_cached(stack, started), started)


def main() -> None:
    """Parse the command line and make or lock one environment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stack", choices=STACKS)
    parser.add_argument("--lock", action="store_true", help="write the constraint files anew")
    parser.add_argument("--upgrade", action="store_true", help="with --lock: newest versions")
    args = parser.parse_args()
    if args.lock:
        lock(args.stack, args.upgrade)
    else:
        make(args.stack)


if __name__ == "__main__":
    main()
