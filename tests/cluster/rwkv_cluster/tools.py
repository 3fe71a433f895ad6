"""Where programs of the host come from: each one's Debian package, and the error that names it.

Installs nothing; `.ci/apt-packages.txt` lists the same packages.
"""

import os
import shutil
from collections.abc import Iterable
from pathlib import Path

from rwkv_cluster import errors

PACKAGES = {
    "buildah": "buildah",
    "gcc": "gcc libc6-dev",
    "ip": "iproute2",
    "ipset": "ipset",
    "iptables": "iptables",
    "nft": "nftables",
    "nsenter": "util-linux",
    "runc": "runc",
    "setpriv": "util-linux",
    "unshare": "util-linux",
}
GO_REMEDY = "install Go 1.21 or newer (it fetches the release that go.mod names by itself)"
CNI_DIR = Path("/usr/lib/cni")
NODE_TOOLS = ("ip", "ipset", "iptables", "nft", "nsenter", "runc", "unshare")

# Debian keeps these where an unprivileged user's PATH doesn't look.
SYSTEM_PATH = os.pathsep.join(("/usr/local/sbin", "/usr/sbin", "/sbin"))


def find(tool: str) -> str:
    """Return the path of a program, or raise MissingTool with what to install."""
    path = shutil.which(tool) or shutil.which(tool, path=SYSTEM_PATH)
    if path is None:
        raise errors.MissingTool(tool, remedy(tool))
    return path


def remedy(tool: str) -> str:
    """Say how to get a program."""
    if tool == "go":
        return GO_REMEDY
    return f"install it with: apt-get install {PACKAGES.get(tool, tool)}"


def require(names: Iterable[str]) -> None:
    """Raise MissingTool for the first program that isn't there."""
    for name in names:
        find(name)


def require_node() -> None:
    """Check all that a node needs from the host, before anything is started."""
    if os.geteuid() != 0:
        raise errors.UsageError(
            "a local cluster needs root: it makes network namespaces and mounts"
        )
    require(NODE_TOOLS)
    if not (CNI_DIR / "bridge").exists():
        raise errors.MissingTool(
            str(CNI_DIR / "bridge"), "install it with: apt-get install containernetworking-plugins"
        )
