"""A HAProxy that can run the routers' config, on machines whose own is older or missing.

Takes the machine's if it is 3.2 or newer. Else fetches Debian's package with the libraries that it
needs, through an apt of its own: its sources, lists and status are in the cache folder, so the
machine's suite and packages stay as they are. The program then runs with those libraries only.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

SUITE: Final = "forky"
WANTED: Final = (3, 2)
KEYRING: Final = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PACKAGES: Final = (
    "haproxy",
    "libc6",
    "libcrypt1",
    "libgcc-s1",
    "libjemalloc2",
    "liblua5.4-0",
    "libopentracing-c-wrapper0t64",
    "libopentracing1",
    "libpcre2-8-0",
    "libssl3t64",
    "libstdc++6",
    "libzstd1",
    "patchelf",
    "zlib1g",
)
# Debian's testing suite moves on under an index that may be past its date; it stays signed.
SOURCES: Final = """Types: deb
URIs: {mirror}
Suites: {suite}
Components: main
Signed-By: {keyring}
Check-Valid-Until: no
"""
APT_CONFIG: Final = """Dir::State "{folder}/state";
Dir::State::status "{folder}/status";
Dir::Cache "{folder}/cache";
Dir::Etc::SourceList "/dev/null";
Dir::Etc::SourceParts "{folder}/sources";
Acquire::Languages "none";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
APT::Sandbox::User "root";
"""


class Missing(Exception):
    """What this machine lacks to run the routers' config."""


def find() -> Path:
    """Path of a HAProxy that is new enough; fetched once, then cached.

    Raises:
        Missing: with what to install.
    """
    own = os.environ.get("RWKV_HAPROXY") or shutil.which("haproxy")
    if own and version(Path(own)) >= WANTED:
        return Path(own)
    recipe = "\n".join((SUITE, *PACKAGES, SOURCES, APT_CONFIG))
    digest = hashlib.sha256(recipe.encode()).hexdigest()[:12]
    folder = _cache() / "bin" / f"haproxy-{digest}"
    program = folder / "root" / "usr" / "sbin" / "haproxy"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "done").exists():
            _fetch(folder)
            (folder / "done").touch()
    return program


def version(program: Path) -> tuple[int, ...]:
    """First two numbers of a HAProxy's version; empty for what isn't one."""
    try:
        answer = subprocess.run([str(program), "-v"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ()
    match = re.search(r"version (\d+)\.(\d+)", answer.stdout)
    return (int(match[1]), int(match[2])) if match else ()


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("RWKV_CACHE") or Path(base) / "rwkv-operator")


def _fetch(folder: Path) -> None:
    if shutil.which("apt-get") is None or not KEYRING.exists():
        raise Missing("HAProxy 3.2 or newer: install it, or name it in RWKV_HAPROXY")
    print(f"haproxy: Debian's package with its libraries, about 25 MB, into {folder}", flush=True)
    for name in ("root", "state", "cache", "sources", "packages"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in ("root", "state/lists/partial", "cache/archives/partial", "sources", "packages"):
        (folder / name).mkdir(parents=True)
    (folder / "status").write_text("")
    source = SOURCES.format(mirror=_mirror(), suite=SUITE, keyring=KEYRING)
    (folder / "sources" / "haproxy.sources").write_text(source)
    (folder / "apt.conf").write_text(APT_CONFIG.format(folder=folder))
    environment = {**os.environ, "APT_CONFIG": str(folder / "apt.conf")}
    _run(["apt-get", "-q", "update"], folder, environment)
    _run(["apt-get", "-q", "download", *PACKAGES], folder / "packages", environment)
    for package in sorted((folder / "packages").glob("*.deb")):
        _run(["dpkg-deb", "-x", str(package), str(folder / "root")], folder, environment)
    _bind_libraries(folder / "root")
    for name in ("state", "cache", "packages"):
        shutil.rmtree(folder / name)


def _mirror() -> str:
    """Debian's archive as this machine knows it."""
    named = os.environ.get("RWKV_DEBIAN_MIRROR")
    if named:
        return named
    answer = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=True,
    )
    for uri in answer.stdout.split():
        if uri.rstrip("/").endswith("/debian"):
            return uri
    raise Missing("a Debian archive in apt's sources, or its address in RWKV_DEBIAN_MIRROR")


def _bind_libraries(root: Path) -> None:
    """Make the program load the fetched libraries, also when it starts itself again."""
    program = root / "usr" / "sbin" / "haproxy"
    loader = next((root / "usr" / "lib").glob("*/ld-linux*.so*"))
    libraries = loader.parent
    patch = [str(loader), "--library-path", str(libraries), str(root / "usr" / "bin" / "patchelf")]
    patch += ["--set-interpreter", str(loader), "--force-rpath", "--set-rpath", str(libraries)]
    _run([*patch, str(program)], root, dict(os.environ))
    if version(program) < WANTED:
        raise Missing("HAProxy 3.2 or newer: the fetched one does not start; see RWKV_HAPROXY")


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise Missing(f"{' '.join(command[:3])} failed: {done.stderr.strip()[-500:]}")


if __name__ == "__main__":
    print(find())
