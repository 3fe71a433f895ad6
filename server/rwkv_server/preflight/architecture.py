"""The processor's architecture, by the name that Kubernetes and image registries use."""

from __future__ import annotations

from rwkv_server.preflight.machine import Machine, Reading, look

NAMES = {"x86_64": "amd64", "aarch64": "arm64"}


def read_architecture(machine: Machine) -> list[Reading]:
    """One reading; names that Kubernetes spells alike stay as they are."""
    return [look("uname", lambda: NAMES.get(machine.architecture, machine.architecture))]
