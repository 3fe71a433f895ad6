"""Runs while the image for Ascend is built: the vendor's packages stay, and our needs are met.

    python3 check.py before FILE     remember every installed distribution
    python3 check.py after FILE      compare; exits with what was moved or is missing

pip without dependencies asks nobody; this asks afterwards.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

DISTRIBUTION = "rwkv-operator"
EXTRA = "server"


def read_installed() -> dict[str, str]:
    """Version by name of everything that is installed."""
    found = ((d.metadata["Name"], d.version) for d in metadata.distributions())
    return {canonicalize_name(name): version for name, version in found}


def find_moved(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """What another version of is there now, or nothing."""
    return [
        f"{name} was {version} and is {after.get(name, 'gone')}"
        for name, version in sorted(before.items())
        if after.get(name) != version
    ]


def find_unmet(requirements: Iterable[str], installed: Mapping[str, str]) -> list[str]:
    """Those of our requirements that the image doesn't meet."""
    unmet = []
    for requirement in map(Requirement, requirements):
        if requirement.marker and not requirement.marker.evaluate({"extra": EXTRA}):
            continue
        version = installed.get(canonicalize_name(requirement.name))
        if version is None or not requirement.specifier.contains(version, prereleases=True):
            unmet.append(f"{requirement.name}{requirement.specifier} is {version or 'missing'}")
    return unmet


def main() -> None:
    """Remember or compare."""
    word, file = sys.argv[1], Path(sys.argv[2])
    if word == "before":
        file.write_text(json.dumps(read_installed()))
        return
    before, after = json.loads(file.read_text()), read_installed()
    requirements = metadata.requires(DISTRIBUTION) or []
    problems = [*find_moved(before, after), *find_unmet(requirements, after)]
    added = sorted(set(after) - set(before))
    print(f"added to the vendor's {len(before)} packages: {', '.join(added)}")
    if problems:
        raise SystemExit("the vendor's image doesn't fit:\n" + "\n".join(problems))


if __name__ == "__main__":
    main()
