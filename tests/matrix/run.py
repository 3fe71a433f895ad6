"""Runs the engine's most telling tests with every vLLM that we support; `make test-matrix`.

All versions run the same source tree. What differs between them is in `rwkv_server.vllm_compat`;
what only one of them can do is no part of this.
"""

from __future__ import annotations

import argparse
import ctypes.util
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import ascend_env
import engine_env

ENGINE = Path("tests/engine")
# Without ranks: an engine with vLLM 0.18 has one device.
NAMES = (
    "flags plugin segments block_op parity parity_batches slots recall server_process "
    "state_connector state_finishes states_resources states_turns states_reuse"
)
SUBSET = [str(ENGINE / f"test_{name}.py") for name in NAMES.split()]
SUBSET.append(f"{ENGINE}/test_openai_world.py::test_a_call_and_its_result_by_state")
SUBSET.append("tests/matrix/test_acceptance.py")
# Ascend's plugin of the same version, as far as it goes without its devices.
ASCEND = "tests/matrix/test_ascend_contract.py"


@dataclass(frozen=True)
class Version:
    """A stack's environment and what is asked of it."""

    stack: str
    tests: list[str]
    preload: bool = False


VERSIONS = (Version("cpu", SUBSET), Version("cpu-0.18", [*SUBSET, ASCEND], preload=True))


def preloaded(shared: Path) -> dict[str, str]:
    """The environment of vLLM 0.18 on a CPU, which doesn't start without these two libraries.

    Raises:
        SystemExit: the allocator isn't installed.
    """
    allocator = ctypes.util.find_library("tcmalloc_minimal")
    if allocator is None:
        raise SystemExit("matrix: no libtcmalloc_minimal: apt-get install libtcmalloc-minimal4")
    libraries = f"{allocator}:{shared / 'lib' / 'libiomp5.so'}"
    # In GiB; without it an engine that isn't told its slots takes half of the machine's memory.
    return {"LD_PRELOAD": libraries, "VLLM_CPU_KVCACHE_SPACE": "1"}


def run(version: Version, options: list[str]) -> int:
    """Install one version and run its tests; pytest's exit code."""
    started = time.monotonic()
    shared = engine_env.install_cached(version.stack, started)
    own = engine_env.link_checkout(version.stack, shared, started)
    env = dict(os.environ) | (preloaded(shared) if version.preload else {})
    command = [str(own / "bin/python"), "-m", "pytest", *version.tests, "-m", "not long", *options]
    return subprocess.run(command, cwd=engine_env.REPO, env=env, check=False).returncode


def main() -> None:
    """Run every version, or those named; the first word of the last lines says how each went."""
    known = {version.stack: version for version in VERSIONS}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stack", nargs="*", choices=[*known, []], help="default: all")
    args, options = parser.parse_known_args()
    started = time.monotonic()
    chosen = args.stack or list(known)
    if "cpu-0.18" in chosen:
        engine_env.link_checkout(ascend_env.STACK, ascend_env.install_cached(started), started)
    codes = {stack: run(known[stack], options) for stack in chosen}
    for stack, code in codes.items():
        print(f"{'FAILED' if code else 'passed'} {stack}", flush=True)
    sys.exit(any(codes.values()))


if __name__ == "__main__":
    main()
