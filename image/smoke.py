"""Try each built image from the inside, without a network, as the user that a pod has.

`python image/smoke.py server operator router` prints one line a check and fails if one fails.
What the parts do for a client is the integration and end-to-end tests' business.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import build
import command


@dataclass(frozen=True)
class Check:
    """A shell command inside the image and what its output has to match."""

    what: str
    script: str
    expected: str


@dataclass(frozen=True)
class Result:
    """One check's outcome; `output` is what the command printed on both streams."""

    check: Check
    passed: bool
    output: str
    seconds: float


NO_TRACES = Check(
    "holds neither the build's CA bundle nor its caches",
    "set -- /run/secrets/* /*/.cache/* /var/cache/uv/* /host-uv/* /src/*;"
    ' for f in "$@"; do if [ -s "$f" ]; then echo "left: $f"; fi; done; echo checked',
    r"\Achecked\Z",
)
OWN_FILES = Check(
    "its user can write to /tmp and to no other top folder",
    "for d in / /*/; do case $d in /proc/|/sys/|/dev/) continue; esac;"
    ' if touch "${d}try" 2>/dev/null; then echo "$d"; rm -f "${d}try"; fi; done',
    r"\A/tmp/\Z",
)
USER = Check("runs as user 65532", "id -u; id -g", r"\A65532\n65532\Z")

PLUGIN = """
import importlib.metadata as metadata
(entry,) = [e for e in metadata.entry_points(group="vllm.general_plugins") if e.name == "rwkv7"]
entry.load()()
import vllm
import vllm._C
import vllm.entrypoints.openai.api_server
from vllm.model_executor.models import ModelRegistry
print(vllm.__version__, "RWKV7ForCausalLM" in ModelRegistry.get_supported_archs())
"""
MATH = """
import torch
x = torch.arange(9.0).reshape(3, 3) + torch.eye(3) * 9
one = torch.linalg.inv(x) @ x
print(torch.cuda.is_available(), bool(torch.allclose(one, torch.eye(3), atol=1e-5)))
"""
KERNELS = """
from rwkv_server.kernels import cpu_library
print("kernels:", cpu_library.best_library().name)
"""
MODEL_FILES = "config.json model.safetensors tokenizer.json tokenizer_config.json"

CHECKS = {
    "server": (
        USER,
        OWN_FILES,
        NO_TRACES,
        Check("tells its version", "rwkv-server version", r"\d+\.\d+\.\d+"),
        Check("has lscpu, which vLLM asks", "lscpu", r"Architecture"),
        Check(
            "has the bundled model",
            f"cd /opt/rwkv/models/tiny-recall && ls {MODEL_FILES}",
            "model.safetensors",
        ),
        Check("computes on the CPU", f"python -W ignore -c '{MATH}'", r"^False True$"),
        Check(
            "has C++ kernels for this machine",
            f"python -W ignore -c '{KERNELS}'",
            r"^kernels: (avx512|avx2|neon)$",
        ),
        Check(
            "has vLLM and our model in it", f"python -W ignore -c '{PLUGIN}'", r"^0\.32\.0 True$"
        ),
        Check(
            "has compiled modules",
            "ls /opt/rwkv/env/lib/python3*/site-packages/torch/__pycache__/__init__*.pyc"
            " /opt/rwkv/app/rwkv_server/__pycache__/__init__*.pyc | wc -l",
            r"^2$",
        ),
    ),
    "operator": (
        USER,
        OWN_FILES,
        NO_TRACES,
        Check("has the operator", "rwkv-operator --help", r"usage: rwkv-operator"),
        Check("has the agent", "rwkv-operator-agent --help", r"usage: rwkv-operator-agent"),
        Check("has no engine", "python -c 'import torch' 2>&1 || true", r"No module named"),
    ),
    "router": (
        Check("runs as user 99", "id -u", r"\A99\Z"),
        OWN_FILES,
        NO_TRACES,
        Check(
            "has HAProxy 3.2 or newer", "haproxy -vv", r"HAProxy version (3\.[2-9]|3\.\d\d|[4-9])"
        ),
        Check("exports metrics", "haproxy -vv", r"prometheus-exporter"),
    ),
}


@contextmanager
def container(reference: str, docker: bool) -> Iterator[list[str]]:
    """The words that run a command inside the image, until the block ends."""
    if docker:
        yield [
            "docker", "run", "--rm", "--network=none", "--read-only", "--tmpfs=/tmp",
            "--entrypoint=sh", reference, "-c",
        ]  # fmt: skip
        return
    made = command.output_of(["buildah", "from", "--pull-never", reference])
    if made is None:
        raise command.CommandFailed(f"no image {reference}; build it: python image/build.py …")
    name = made.strip()
    try:
        # chroot isolation shares the host's network: an empty namespace around it has none.
        yield ["unshare", "--net", "buildah", "run", "--isolation", "chroot", name, "sh", "-c"]
    finally:
        command.output_of(["buildah", "rm", name])


def run_check(check: Check, prefix: list[str]) -> Result:
    """Run one check."""
    started = time.monotonic()
    done = subprocess.run([*prefix, check.script], capture_output=True, text=True)
    output = "\n".join(
        line
        for line in (done.stdout + done.stderr).splitlines()
        if "subprocess exited with status" not in line and not line.startswith("Error: exit")
    ).strip()
    passed = re.search(check.expected, output, flags=re.MULTILINE) is not None
    return Result(check, passed, output, time.monotonic() - started)


def smoke(name: str) -> Iterator[Result]:
    """Run an image's checks, one after another."""
    settings = build.Settings(build.docker_answers())
    reference = build.reference_of(build.IMAGES[name], settings)
    with container(reference, settings.docker) as prefix:
        for check in CHECKS[name]:
            yield run_check(check, prefix)


def main() -> None:
    """Check the named images."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("name", nargs="*", choices=[*CHECKS, []], help="default: all")
    failed = 0
    for name in parser.parse_args().name or CHECKS:
        try:
            for result in smoke(name):
                word = "ok" if result.passed else "FAILED"
                print(f"{name}: {result.check.what}: {word} ({result.seconds:.1f} s)", flush=True)
                if not result.passed:
                    failed += 1
                    print(result.output)
        except command.CommandFailed as failure:
            raise SystemExit(f"smoke: {failure}") from None
    if failed:
        raise SystemExit(f"smoke: {failed} checks failed")


if __name__ == "__main__":
    main()
