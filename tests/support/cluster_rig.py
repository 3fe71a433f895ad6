"""What the tests of the cluster share: its command line, kubectl, and a tiny image for pods."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rwkv_cluster import build
from rwkv_cluster.layout import Layout

BUSYBOX = Path("/bin/busybox")
IMAGE = "localhost/rwkv-cluster-test/busybox:1"


def why_not() -> str:
    """Say what is missing for a local cluster; empty when nothing is."""
    if os.geteuid() != 0:
        return "needs root: network namespaces and mounts"
    missing = [tool for tool in ("runc", "nft", "ipset", "buildah") if shutil.which(tool) is None]
    if not BUSYBOX.exists():
        missing.append("busybox-static")
    return f"needs Debian packages: {' '.join(missing)}" if missing else ""


@dataclass(frozen=True)
class Rig:
    """One cluster by name, driven from outside as a user would."""

    name: str

    def command(self, *args: str) -> list[str]:
        """The command line of the bring-up."""
        return [sys.executable, "-m", "rwkv_cluster", "--mode=local", f"--name={self.name}", *args]

    def run(self, *args: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command of the bring-up to its end."""
        done = subprocess.run(
            self.command(*args), capture_output=True, text=True, env=environment(), timeout=600
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def start(self, *args: str) -> subprocess.Popen[bytes]:
        """Start a command of the bring-up and don't wait for it."""
        quiet = subprocess.DEVNULL
        return subprocess.Popen(self.command(*args), env=environment(), stdout=quiet, stderr=quiet)

    @property
    def layout(self) -> Layout:
        """Where the cluster keeps what."""
        return Layout(self.name, build.cache_dir())

    def kubectl_command(self) -> list[str]:
        """The beginning of a kubectl command line."""
        return [str(build.bin_dir() / "kubectl"), f"--kubeconfig={self.layout.kubeconfig}"]

    def kubectl(
        self, *args: str, check: bool = True, stdin: str | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl against the cluster."""
        done = subprocess.run(
            [*self.kubectl_command(), *args],
            capture_output=True,
            text=True,
            input=stdin,
            timeout=120,
            env={**environment(), "KUBECACHEDIR": str(self.layout.run / "kubectl-cache")},
        )
        assert not check or done.returncode == 0, done.stderr
        return done

    def apply(self, *objects: dict[str, Any]) -> None:
        """Apply objects."""
        listing = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        self.kubectl("apply", "--filename=-", stdin=json.dumps(listing))

    def wait(self, condition: str, *what: str, seconds: int = 60) -> None:
        """Wait for a condition with kubectl."""
        self.kubectl("wait", f"--for={condition}", f"--timeout={seconds}s", *what)

    def shell(self, pod: str, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script in a pod; its failure is the caller's business."""
        return self.kubectl("exec", pod, "--", "sh", "-c", script, check=False)


def environment() -> dict[str, str]:
    """The environment of the bring-up: this one, with the package found."""
    return {**os.environ, "PYTHONPATH": str(build.SOURCE_DIR)}


def build_image(folder: Path) -> None:
    """Build the test image with buildah."""
    shutil.copy(BUSYBOX, folder / "busybox")
    dockerfile = "FROM scratch\nCOPY busybox /bin/busybox\nCOPY busybox /bin/sh\n"
    (folder / "Dockerfile").write_text(dockerfile)
    build = ["buildah", "bud", "--isolation=chroot", "--quiet", f"--tag={IMAGE}"]
    subprocess.run([*build, str(folder)], check=True, capture_output=True)


def eventually(check: Callable[[], bool], seconds: float = 60) -> bool:
    """Whether a check holds within that time."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.2)
    return True


def build_pod(name: str, script: str, **spec: Any) -> dict[str, Any]:
    """A pod of the test image that runs a script; `spec` is merged into the pod's spec."""
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["sh", "-c", script],
        "volumeMounts": spec.pop("volumeMounts", []),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 0, **spec},
    }


def read_host() -> dict[str, str]:
    """What a cluster may not change on the host, as text that can be compared."""
    commands = {
        "links": "ip -o link | cut -d' ' -f2",
        "addresses": "ip -o -4 address show scope global | tr -s ' ' | cut -d' ' -f2,4",
        "routes": "ip route show table all | grep -v '^ff'",
        "namespaces": "ip netns list",
        "nft": "nft list ruleset",
        "ipsets": "ipset list -n",
        "mounts": "cut -d' ' -f5 /proc/self/mountinfo | grep -E '^/(run|var/lib/(kubelet|cni))'",
        "cgroups": "find /sys/fs/cgroup -maxdepth 2 -type d -name '*rwkv*'",
        "folders": "ls -d /run/rwkv-cluster /run/containerd /run/netns /var/lib/kubelet"
        " /var/lib/cni /etc/cni /opt/cni 2>/dev/null",
        "sysctls": "sysctl vm.overcommit_memory vm.panic_on_oom kernel.panic kernel.panic_on_oops"
        " kernel.keys.root_maxkeys kernel.keys.root_maxbytes net.ipv4.ip_forward",
    }
    return {
        name: subprocess.run(["sh", "-c", command], capture_output=True, text=True).stdout
        for name, command in commands.items()
    }
