"""What a GPU run stands on: device, versions, commit, and the hashes of the code it ran."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[2]
PACKAGES = ("torch", "triton", "vllm", "numpy")


def find_missing() -> str | None:
    """Why nothing can be run here, or None."""
    for package in ("torch", "triton"):
        if importlib.util.find_spec(package) is None:
            return f"the Python package {package} isn't installed"
    import torch

    if not torch.cuda.is_available():
        return f"torch {torch.__version__} sees no GPU"
    return None


def describe() -> dict[str, Any]:
    """The device and everything on it that a result depends on."""
    import torch

    properties = torch.cuda.get_device_properties(0)
    return {
        "gpu": properties.name,
        "memoryGiB": round(properties.total_memory / 2**30, 1),
        "processors": properties.multi_processor_count,
        "capability": list(torch.cuda.get_device_capability(0)),
        "driver": _output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"),
        "runtime": torch.version.cuda or torch.version.hip,
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "commit": _output("git", "-C", str(REPO), "rev-parse", "HEAD"),
        "code": hash_code(),
    }


def hash_code() -> dict[str, str]:
    """SHA-256 of every file of this repository that has been imported, and of the script."""
    found = {getattr(module, "__file__", None) for module in list(sys.modules.values())}
    # Some libraries' modules name files that aren't there.
    real = {Path(name) for name in found if name and Path(name).is_absolute()}
    files = {file.resolve() for file in real} | {REPO / "tests" / "gpu" / "run"}
    own = sorted(file for file in files if file.is_relative_to(REPO) and file.suffix in ("", ".py"))
    return {
        str(file.relative_to(REPO)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in own
        if "build" not in file.relative_to(REPO).parts
    }


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _output(*command: str) -> str | None:
    """What a command prints, None where it can't be run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
