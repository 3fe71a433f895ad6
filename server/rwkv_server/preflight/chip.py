"""Which chips this container sees, by every tool that can tell."""

from __future__ import annotations

import functools

from rwkv_server.preflight import npu_smi, nvidia_smi, probes
from rwkv_server.preflight.machine import Machine, Reading, Unreadable, look


def read_chips(vendor: str, machine: Machine) -> list[Reading]:
    """One reading per tool and device."""
    if vendor == "ascend":
        return [*_npu_smi(machine), *_probe(machine, probes.TORCH_NPU, None)]
    if vendor == "nvidia":
        return [*_nvidia_smi(machine, "name"), *_probe(machine, probes.NVML, "name")]
    return [Reading(vendor, None, "stacks of this vendor name no chip")]


def read_compute_capabilities(vendor: str, machine: Machine) -> list[Reading]:
    """One reading per tool and NVIDIA GPU."""
    if vendor != "nvidia":
        return [Reading(vendor, None, "only NVIDIA GPUs have a compute capability")]
    return [
        *_nvidia_smi(machine, "compute_capability"),
        *_probe(machine, probes.NVML, "computeCapability"),
    ]


def _npu_smi(machine: Machine) -> list[Reading]:
    try:
        ids = npu_smi.chip_ids(machine)
    except Unreadable as error:
        return [Reading("npu-smi", None, str(error))]
    return [
        look(f"npu-smi, NPU {npu}", functools.partial(npu_smi.chip_name, machine, npu, chip))
        for npu, chip in ids
    ]


def _nvidia_smi(machine: Machine, field: str) -> list[Reading]:
    try:
        found = nvidia_smi.gpus(machine)
    except Unreadable as error:
        return [Reading("nvidia-smi", None, str(error))]
    return [
        Reading(f"nvidia-smi, GPU {index}", getattr(gpu, field)) for index, gpu in enumerate(found)
    ]


def _probe(machine: Machine, probe: str, key: str | None) -> list[Reading]:
    try:
        devices = probes.ask(machine, probe).get("devices") or []
    except Unreadable as error:
        return [Reading(probe, None, str(error))]
    if not devices:
        return [Reading(probe, None, f"{probe} sees no device")]
    return [
        Reading(f"{probe}, device {index}", str(device[key] if key else device))
        for index, device in enumerate(devices)
    ]
