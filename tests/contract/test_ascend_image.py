"""The image for Ascend as far as its text tells: it has never been built on the vendor's image."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import vendor_pins

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "image" / "server.Dockerfile").read_text()
ADDED = (ROOT / "image" / "constraints" / "ascend-image.txt").read_text()
HUB = (ROOT / "image" / "constraints" / "ascend-hub.txt").read_text()


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
    assert len(installs) == 3
    for command in installs:
        assert "--no-deps" in command
        assert ("--require-hashes" in command) != ("--no-index" in command)
        assert ("ascend-hub.txt" in command) == ("--target /opt/rwkv/hub" in command)
    assert steps.index("check.py before") < steps.index("pip install")
    assert steps.rindex("pip install") < steps.index("check.py after")


def test_only_what_the_vendor_lacks_is_added() -> None:
    assert set(vendor_pins.parse_pins(ADDED.replace("\\", ""))) == vendor_pins.ADDED


def test_the_hubs_clients_are_whole_in_a_folder_of_their_own() -> None:
    pins = vendor_pins.parse_pins(HUB.replace("\\", ""))
    for name, requirement in vendor_pins.extra("hub").items():
        assert requirement.specifier.contains(pins[name])


@pytest.mark.parametrize(
    ("arguments", "path"), [(["fetch", "--port", "1"], "/opt/rwkv/hub"), (["serve"], ""), ([], "")]
)
def test_only_a_download_sees_the_hubs_clients(
    arguments: list[str], path: str, tmp_path: Path
) -> None:
    (tmp_path / "python3").write_text('#!/bin/sh\necho "$PYTHONPATH|$@"\n')
    (tmp_path / "python3").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    script = str(ROOT / "image" / "ascend" / "rwkv-server")
    done = subprocess.run(
        [script, *arguments], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == f"{path}|{' '.join(['-m', 'rwkv_server', *arguments])}"
    assert any(line.startswith("ENV PATH=/opt/rwkv/bin:") for line in instructions("ascend"))
