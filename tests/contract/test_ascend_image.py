"""The image for Ascend as far as its text tells: it has never been built on the vendor's image."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import vendor_pins

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "image" / "server.Dockerfile").read_text()
ADDED = (ROOT / "image" / "constraints" / "ascend-image.txt").read_text()


def instructions(stage: str) -> list[str]:
    """The instructions of one stage, each on one line."""
    joined = TEXT.replace("\\\n", " ")
    lines = [line.strip() for line in joined.splitlines() if line and not line.startswith("#")]
    begin = next(i for i, line in enumerate(lines) if re.match(rf"FROM \S+ AS {stage}$", line))
    rest = lines[begin + 1 :]
    end = next((i for i, line in enumerate(rest) if line.startswith("FROM ")), len(rest))
    return [lines[begin], *rest[:end]]


def test_the_vendors_image_is_an_argument_and_the_default_target_is_another() -> None:
    assert instructions("ascend")[0] == "FROM ${ASCEND_BASE} AS ascend"
    assert re.search(r"^ARG ASCEND_BASE=\S+/vllm-ascend:v0\.18\.0$", TEXT, re.MULTILINE)
    last = [line for line in TEXT.splitlines() if line.startswith("FROM ")][-1]
    assert last == "FROM ${ENGINE}"


@pytest.mark.parametrize("stage", ["wheel", "ascend"])
def test_everything_that_is_copied_from_the_repository_exists(stage: str) -> None:
    copies = [line.split()[1:] for line in instructions(stage) if line.startswith("COPY ")]
    sources = [source for words in copies if "--from=" not in words[0] for source in words[:-1]]
    assert (stage == "ascend") == bool(sources)
    for source in sources:
        assert (ROOT / source).exists(), source


def test_pip_never_resolves_there() -> None:
    steps = " ".join(instructions("ascend"))
    installs = re.findall(r"pip install [^&]*", steps)
    assert len(installs) == 2
    for command in installs:
        assert "--no-deps" in command
    assert "--require-hashes" in installs[0] and "--no-index" in installs[1]
    assert steps.index("check.py before") < steps.index("pip install")
    assert steps.rindex("pip install") < steps.index("check.py after")


def test_only_what_the_vendor_lacks_is_added() -> None:
    assert set(vendor_pins.parse_pins(ADDED.replace("\\", ""))) == vendor_pins.ADDED


def test_the_command_brings_the_vendors_environment_where_there_is_one() -> None:
    script = ROOT / "image" / "ascend" / "rwkv-server"
    assert os.access(script, os.X_OK)
    subprocess.run(["bash", "-n", str(script)], check=True)
    assert script.read_text().endswith('exec python3 -m rwkv_server "$@"\n')
    assert any(line.startswith("ENV PATH=/opt/rwkv/bin:") for line in instructions("ascend"))
