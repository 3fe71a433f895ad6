"""Compare the container's Python packages with what the hardware stack promises.

Versions are compared by their PEP 440 public part: `.postN` counts, a local part such as `+cpu`
doesn't, because builders add it freely.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import metadata

from packaging.version import InvalidVersion, Version

from rwkv_server.errors import RuntimeMismatch


def installed_version(name: str) -> str | None:
    """The version of an installed distribution, or None."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_packages(
    wanted: Mapping[str, str], installed: Callable[[str], str | None] = installed_version
) -> None:
    """Raise RuntimeMismatch that names every package which isn't the stack's version."""
    found = {name: installed(name) for name in sorted(wanted)}
    wrong = {
        name: version or "not installed"
        for name, version in found.items()
        if version is None or not _same_public(version, wanted[name])
    }
    if wrong:
        told = "; ".join(f"{name} is {wrong[name]}, wanted {wanted[name]}" for name in wrong)
        raise RuntimeMismatch(
            f"the engine image doesn't match its hardware stack: {told}. "
            "Use the image the stack names, or a stack made for this image.",
            found=wrong,
            wanted={name: wanted[name] for name in wrong},
        )


def _same_public(found: str, wanted: str) -> bool:
    try:
        # Version of the public part again: 0.32 and 0.32.0 are one version, but two texts.
        return Version(Version(found).public) == Version(Version(wanted).public)
    except InvalidVersion:
        return found == wanted
