"""The built images, tried from the inside (image/smoke.py) and looked at from the outside."""

from __future__ import annotations

import json

import pytest

import build
import command
import smoke

pytestmark = pytest.mark.images


def reference(name: str) -> str:
    """The image of this work tree; the test is skipped where it isn't built."""
    settings = build.Settings(build.docker_answers())
    found = build.reference_of(build.IMAGES[name], settings)
    if not build.is_built(found, settings):
        pytest.skip(f"the image {found} isn't built: make images")
    return found


def configuration(name: str) -> dict[str, object]:
    """User, environment and entry point of an image, as the runtime gets them."""
    found = reference(name)
    if build.docker_answers():
        text = command.output_of(["docker", "image", "inspect", "-f", "{{json .Config}}", found])
    else:
        text = command.output_of(["buildah", "inspect", "-f", "{{json .OCIv1.Config}}", found])
    assert text is not None
    parsed: dict[str, object] = json.loads(text)
    return parsed


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
