"""The versions of the Python packages that a hardware stack names."""

from __future__ import annotations

from rwkv_server.preflight.machine import Machine, Reading


def read_package(name: str, machine: Machine) -> list[Reading]:
    """One reading: the version in the distribution's metadata."""
    version = machine.version(name)
    problem = "" if version else "not installed"
    return [Reading("package metadata", version, problem)]
