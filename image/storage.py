"""The local image storage: is an image there, give it a name, forget what nobody needs any more.

Docker's storage belongs to the machine's user: nothing there is removed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import command

KEPT = 4
CONTENT_TAG = re.compile(r"[0-9a-f]{12}")


def is_built(reference: str, docker: bool) -> bool:
    """Whether the image is there."""
    words = ["docker", "image", "inspect"] if docker else ["buildah", "inspect", "--type", "image"]
    return command.output_of([*words, reference]) is not None


def add_tag(reference: str, tag: str, docker: bool) -> None:
    """Give the image a second tag."""
    other = f"{reference.rpartition(':')[0]}:{tag}"
    command.output_of(["docker" if docker else "buildah", "tag", reference, other])


def choose_old(references: Sequence[str], repository: str, kept: int = KEPT) -> list[str]:
    """Of references in the order in which they came, those to forget; named tags stay."""
    own = [
        reference
        for reference in references
        if reference.rpartition(":")[0] == repository
        and CONTENT_TAG.fullmatch(reference.rpartition(":")[2])
    ]
    return own[:-kept] if kept else own


def forget_old(repository: str, stages: bool) -> None:
    """Remove all but the newest images of a repository, which a few code changes soon pile up.

    Args:
        repository: registry and path.
        stages: also what multi-stage builds left as a cache; 2 GB each for the engine.
    """
    listed = command.output_of(["buildah", "images", "--format", "{{.Name}}:{{.Tag}}"]) or ""
    for reference in choose_old(listed.split(), repository):
        command.output_of(["buildah", "rmi", reference])
    if stages:
        command.output_of(["buildah", "rmi", "--prune"])
