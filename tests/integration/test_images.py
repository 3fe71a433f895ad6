"""The built images, tried from the inside (image/smoke.py) and looked at from the outside."""

from __future__ import annotations

import json
from typing import Any

import pytest

import build
import command
import smoke
import storage

pytestmark = pytest.mark.images


def reference(name: str) -> str:
    """The image of this work tree; the test is skipped where it isn't built."""
    settings = build.Settings(build.docker_answers())
    found = build.reference_of(build.IMAGES[name], settings)
    if not storage.is_built(found, settings.docker):
        pytest.skip(f"the image {found} isn't built: make images")
    return found


def configuration(name: str) -> dict[str, Any]:
    """User, environment and entry point of an image, as the runtime gets them."""
    docker = build.docker_answers()
    inspect = (
        ["docker", "image", "inspect"] if docker else ["buildah", "inspect", "--type", "image"]
    )
    text = command.output_of([*inspect, reference(name)])
    assert text is not None
    parsed: Any = json.loads(text)
    found: dict[str, Any] = parsed[0]["Config"] if docker else parsed["OCIv1"]["config"]
    return found


@pytest.mark.parametrize("name", smoke.CHECKS)
def test_an_image_passes_its_smoke_checks(name: str) -> None:
    reference(name)
    failed = {r.check.what: r.output for r in smoke.smoke(name) if not r.passed}
    assert failed == {}


@pytest.mark.parametrize("name", smoke.CHECKS)
def test_an_image_names_a_numeric_user_and_no_index(name: str) -> None:
    found = configuration(name)
    # Only a number lets the kubelet see that it isn't root.
    uid, _, gid = str(found["User"]).partition(":")
    assert int(uid) > 0
    assert int(gid) > 0
    text = json.dumps(found).lower()
    for word in ("http://", "https://", "index", "proxy=", "host-uv"):
        assert word not in text.replace("haproxy", ""), f"{word} in the image's configuration"
