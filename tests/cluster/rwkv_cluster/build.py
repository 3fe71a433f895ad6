"""Builds the binaries from the pinned Go modules, once for each content of those.

They land in `<cache>/bin/<hash>`, where the hash covers every file that decides the result. This
file knows programs and flags, not what they are run for.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rwkv_cluster import errors, tools
from rwkv_cluster.progress import Progress

KUBERNETES_VERSION = "1.36.3"
SOURCE_DIR = Path(__file__).resolve().parent.parent
SOURCE_FOLDERS = ("go", "go-containerd", "pause")
SCRATCH_PREFIX = "building-"
KUBE_COMPONENTS = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
)


@dataclass(frozen=True)
class Program:
    """One binary: its Go package, the module that pins it and what the linker is told."""

    name: str
    package: str
    link: tuple[str, ...] = ()
    module: str = "go"


def _kube_version_flags() -> tuple[str, ...]:
    major, minor, _ = KUBERNETES_VERSION.split(".")
    base = "k8s.io/component-base/version"
    return (
        f"-X {base}.gitVersion=v{KUBERNETES_VERSION}",
        f"-X {base}.gitMajor={major}",
        f"-X {base}.gitMinor={minor}",
    )


def _containerd(command: str) -> Program:
    package = f"github.com/containerd/containerd/v2/cmd/{command}"
    return Program(command, package, module="go-containerd")


PROGRAMS = {
    program.name: program
    for program in (
        Program("kube", "./kube", _kube_version_flags()),
        Program("helm", "helm.sh/helm/v4/cmd/helm"),
        Program("coredns", "./coredns"),
        _containerd("containerd"),
        _containerd("containerd-shim-runc-v2"),
        _containerd("ctr"),
        Program("kube-router", "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"),
    )
}
PAUSE = "pause"
ALL = (*PROGRAMS, PAUSE)


def cache_dir() -> Path:
    """Return the cache folder of the project, outside the work tree."""
    if named := os.environ.get("RWKV_CACHE"):
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "rwkv-operator"


def source_hash() -> str:
    """Hash the Go modules, the C source, the flags and the machine's architecture."""
    digest = hashlib.sha256(platform.machine().encode())
    digest.update(repr(sorted(PROGRAMS.items())).encode())
    files = [path for folder in SOURCE_FOLDERS for path in (SOURCE_DIR / folder).rglob("*")]
    for path in sorted(path for path in files if path.is_file()):
        digest.update(f"\0{path.relative_to(SOURCE_DIR)}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def bin_dir() -> Path:
    """Return where the binaries of this content are, or will be."""
    return cache_dir() / "bin" / source_hash()


def ensure(names: Iterable[str], progress: Progress) -> Path:
    """Build what is missing of the named programs.

    Args:
        names: Keys of PROGRAMS, or "pause".
        progress: Told before a build begins and how long it took.

    Returns:
        The folder that holds them; kube's components are links there.
    """
    folder = bin_dir()
    wanted = tuple(names)
    if not _missing(folder, wanted):
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with _lock(folder.with_suffix(".lock")):
        for leftover in folder.glob(f"{SCRATCH_PREFIX}*"):
            shutil.rmtree(leftover)
        missing = _missing(folder, wanted)
        if missing:
            progress.say(f"building {', '.join(missing)} into {folder} (once; kept between runs)")
        for name in missing:
            with progress.step(f"build {name}"):
                _build(name, folder)
    return folder


def binary(name: str, progress: Progress) -> Path:
    """Return the path of one program or Kubernetes component, built when missing."""
    owner = "kube" if name in KUBE_COMPONENTS else name
    if owner not in ALL:
        known = ", ".join(sorted({*ALL, *KUBE_COMPONENTS}))
        raise errors.UsageError(f"{name}: no such program; one of {known}")
    return ensure([owner], progress) / name


def _missing(folder: Path, names: Iterable[str]) -> list[str]:
    return [name for name in names if not (folder / name).exists()]


def _build(name: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder, prefix=SCRATCH_PREFIX) as scratch:
        target = Path(scratch) / name
        if name == PAUSE:
            source = SOURCE_DIR / "pause" / "pause.c"
            command = [tools.find("gcc"), "-Os", "-static", "-s", "-o", str(target), str(source)]
            _run(command, source.parent, name)
        else:
            program = PROGRAMS[name]
            _run(_go_command(program, target), SOURCE_DIR / program.module, name)
        if name == "kube":
            _link_components(folder)
        target.rename(folder / name)


def _link_components(folder: Path) -> None:
    for component in KUBE_COMPONENTS:
        link = folder / component
        link.unlink(missing_ok=True)
        link.symlink_to("kube")


def _go_command(program: Program, target: Path) -> list[str]:
    flags = " ".join(("-s", "-w", *program.link))
    go = [tools.find("go"), "build", "-mod=readonly", "-trimpath", "-buildvcs=false"]
    return [*go, "-ldflags", flags, "-o", str(target), program.package]


def _run(command: list[str], folder: Path, name: str) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOWORK": "off"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        tail = "\n".join(done.stderr.strip().splitlines()[-15:])
        raise errors.BuildFailed(f"{name}: build ended with {done.returncode}:\n{tail}")


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Let one process build at a time; the others then find the result."""
    with path.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
