"""The list of inputs in build.py against the Dockerfiles, and the commands that it makes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import base
import build

COPY = re.compile(r"^COPY (?!--from)(?P<sources>.+) \S+$", re.MULTILINE)
ARG = re.compile(r"^ARG (?P<name>\w+)=(?P<default>\S*)$", re.MULTILINE)
FETCHES = re.compile(r"\b(uv pip install|pip install|engine_env\.py)\b")


def dockerfile(name: str) -> str:
    return (build.REPO / build.IMAGES[name].dockerfile).read_text()


@pytest.mark.parametrize("name", build.IMAGES)
def test_whatever_a_dockerfile_copies_is_in_the_hash(name: str) -> None:
    copied = {
        source.rstrip("/")
        for match in COPY.finditer(dockerfile(name))
        for source in match["sources"].split()
        if not source.startswith("--")
    }
    listed = build.IMAGES[name].copied
    missing = [
        path
        for path in copied
        if not any(path == one or path.startswith(f"{one}/") for one in listed)
    ]
    assert missing == []


@pytest.mark.parametrize("name", build.IMAGES)
def test_the_bases_are_build_arguments_with_a_public_default(name: str) -> None:
    image = build.IMAGES[name]
    defaults = {match["name"]: match["default"] for match in ARG.finditer(dockerfile(name))}
    for argument, base_name in image.bases.items():
        assert defaults[argument]
        assert base_name in base.BASES
    if image.parent:
        argument, parent = image.parent
        assert defaults[argument] == f"rwkv-operator/{parent}:dev"


@pytest.mark.parametrize("name", ["engine", "server", "operator"])
def test_packages_are_installed_by_hash_and_the_ca_is_a_secret(name: str) -> None:
    for run in re.findall(r"^RUN (?:.*\\\n)*.*$", dockerfile(name), flags=re.MULTILINE):
        if FETCHES.search(run) and "--offline" not in run:
            assert "--mount=type=secret,id=ca" in run
            assert "--require-hashes" in run or "engine_env.py" in run


@pytest.mark.parametrize("name", build.IMAGES)
def test_an_image_ends_as_a_user_without_rights(name: str) -> None:
    users = re.findall(r"^USER (\S+)$", dockerfile(name), flags=re.MULTILINE)
    assert users[-1] in ("65532:65532", "99:99", "99")


def test_buildah_gets_bases_cache_and_fixed_time_stamps() -> None:
    image = build.IMAGES["engine"]
    settings = build.Settings(docker=False)
    assert build.arguments_of(image, settings, None) == {
        "BASE": base.reference(base.BASES["python"]),
        "BUILD_BASE": base.reference(base.BASES["python-build"]),
    }
    command = build.build_command(image, "x:1", settings, {"A": "b"})
    assert command[:2] == ["buildah", "bud"]
    assert command[command.index("--timestamp") + 1] == "0"
    assert command[command.index("--isolation") + 1] == "chroot"


def test_docker_takes_the_public_bases() -> None:
    image = build.IMAGES["engine"]
    settings = build.Settings(True, torch_index="https://index.test/cpu", platform="linux/arm64")
    assert build.arguments_of(image, settings, None) == {"TORCH_INDEX": "https://index.test/cpu"}
    command = build.build_command(image, "x:1", settings, {"A": "b"})
    assert command[:2] == ["docker", "build"]
    assert command[command.index("--platform") + 1] == "linux/arm64"


def test_the_server_stands_on_the_engine_and_changes_with_it() -> None:
    server = build.IMAGES["server"]
    plain, other = build.Settings(False), build.Settings(False, "https://index.test/cpu")
    engine = build.reference_of(build.IMAGES["engine"], plain)
    assert build.arguments_of(server, plain, engine)["ENGINE"] == engine
    assert build.reference_of(server, plain) != build.reference_of(server, other)
    for name in ("operator", "router"):
        image = build.IMAGES[name]
        assert build.reference_of(image, plain) == build.reference_of(image, other)


def test_our_code_is_no_input_of_the_engine() -> None:
    engine = build.IMAGES["engine"]
    assert not [
        path for path in engine.copied if path.startswith(("server", "operator", "pyproject"))
    ]


def test_only_the_moving_suite_may_have_an_expired_index() -> None:
    expired = {one.suite for one in base.BASES.values() if one.expired_index}
    assert expired == {"forky"}
    for one in base.BASES.values():
        options = " ".join(base.mmdebstrap_command(one, Path("x.tar"), None))
        assert ("Check-Valid-Until" in options) == one.expired_index
        for unsafe in ("allow-insecure", "AllowUnauthenticated", "trusted=yes", "allow-weak"):
            assert unsafe not in options


def test_a_mirror_comes_last_and_only_when_given() -> None:
    python = base.BASES["python"]
    assert base.mmdebstrap_command(python, Path("x.tar"), None)[-2:] == ["bookworm", "x.tar"]
    given = base.mmdebstrap_command(python, Path("x.tar"), "http://mirror.test/debian")
    assert given[-1] == "http://mirror.test/debian"
