"""Make base images from Debian packages, for machines that reach no container registry.

Each stands in for the public image that a Dockerfile takes by default (`python:3.11-slim-bookworm`,
`haproxy:3.2`): the same programs, users and writable places, so that one Dockerfile serves both.
What goes *on top* of a base belongs in the Dockerfiles, not here.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

import command
import engine_env

# No maintainer script runs in an extracted base: these lines do what they would have done.
PREPARE = """set -eu
cd "$1"
mkdir -p dev etc home proc run sys tmp var/tmp root opt
chmod 1777 tmp var/tmp
cp usr/share/base-passwd/passwd.master etc/passwd
cp usr/share/base-passwd/group.master etc/group
echo 'hosts: files dns' > etc/nsswitch.conf
mkdir -p etc/ssl/certs
find usr/share/ca-certificates -name '*.crt' | LC_ALL=C sort | xargs cat > \
  etc/ssl/certs/ca-certificates.crt
find usr/share/doc -type f ! -name copyright -delete
find usr/share/doc -type d -empty -delete
rm -rf usr/share/man usr/share/info usr/share/locale usr/share/lintian var/cache/* var/log/*
rm -rf usr/share/pixmaps usr/share/bash-completion
chroot . /sbin/ldconfig
"""
# Sources keep their time stamps at 0 in a layer, so compiled files must not depend on them.
COMPILE = """chroot "$1" /usr/bin/python3 -m compileall -q --invalidation-mode unchecked-hash \
  /usr/lib/python3.11 
ln -sf python3 "$1/usr/bin/python"
"""
HAPROXY = """echo 'haproxy:x:99:99:haproxy:/var/lib/haproxy:/usr/sbin/nologin' >> "$1/etc/passwd"
echo 'haproxy:x:99:' >> "$1/etc/group"
"""


@dataclass(frozen=True)
class Base:
    """One base image: a Debian suite, packages, and shell lines run on the extracted tree."""

    name: str
    suite: str
    packages: tuple[str, ...]
    prepare: tuple[str, ...]
    # Debian's testing suite is republished as it moves; an old copy of its signed index is fine.
    expired_index: bool = False


# An extracted base has no packages but these and what they depend on.
SHELL = tuple(
    "base-files base-passwd bash ca-certificates coreutils dash findutils grep gzip libc-bin"
    " sed tar".split()
)
ENGINE = ("libgomp1", "libnuma1", "libstdc++6", "util-linux")
BASES = {
    base.name: base
    for base in (
        Base("python", "bookworm", (*SHELL, "python3", *ENGINE), (PREPARE, COMPILE)),
        Base("python-build", "bookworm", (*SHELL, "python3-pip", "gcc"), (PREPARE, COMPILE)),
        Base("python-compile", "bookworm", (*SHELL, "python3-pip", "g++"), (PREPARE, COMPILE)),
        Base("haproxy", "forky", (*SHELL, "haproxy"), (PREPARE, HAPROXY), True),
    )
}


def recipe_hash(base: Base) -> str:
    """What the base is made from, in 12 hex digits."""
    recipe = json.dumps(asdict(base), sort_keys=True)
    return hashlib.sha256(recipe.encode()).hexdigest()[:12]


def reference(base: Base) -> str:
    """The name under which the base is kept in the local image storage."""
    return f"localhost/rwkv-operator/base-{base.name}:{recipe_hash(base)}"


def mmdebstrap_command(base: Base, target: Path, mirror: str | None) -> list[str]:
    """The command that writes the base's root file system to the tar file `target`."""
    options = ["mmdebstrap", "--mode=root", "--variant=extract", "--format=tar"]
    options += ["--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"]
    options += [f"--include={','.join(base.packages)}"]
    if base.expired_index:
        options += ['--aptopt=Acquire::Check-Valid-Until "false"']
    options += [f"--extract-hook={lines}" for lines in base.prepare]
    return [*options, base.suite, str(target), *([mirror] if mirror else [])]


def ensure(base: Base, progress: command.Progress) -> str:
    """Make the base image if buildah doesn't have it, and return its reference."""
    name = reference(base)
    if command.output_of(["buildah", "inspect", "--type", "image", name]) is not None:
        return name
    folder = engine_env.cache_root() / "base" / f"{base.name}-{recipe_hash(base)}"
    rootfs = folder / "rootfs.tar"
    if not rootfs.exists():
        if shutil.which("mmdebstrap") is None:
            raise command.CommandFailed("mmdebstrap is missing: apt-get install mmdebstrap")
        progress.say(f"base {base.name}: extracting Debian packages")
        folder.mkdir(parents=True, exist_ok=True)
        partial = folder / "partial.tar"
        make = mmdebstrap_command(base, partial, os.environ.get("RWKV_DEBIAN_MIRROR"))
        env = {"SOURCE_DATE_EPOCH": "0"}
        command.run_logged(f"base {base.name}", make, folder / "mmdebstrap.log", env)
        partial.rename(rootfs)
    (folder / "Dockerfile").write_text("FROM scratch\nADD rootfs.tar /\n")
    build = ["buildah", "bud", "--isolation", "chroot", "--timestamp", "0", "--tag", name]
    command.run_logged(f"base {base.name}", [*build, str(folder)], folder / "buildah.log", {})
    progress.say(f"base {base.name}: {rootfs.stat().st_size / 2**20:.0f} MiB, {name}")
    return name
