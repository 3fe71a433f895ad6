"""The highest CUDA version that the NVIDIA driver runs."""

from __future__ import annotations

from rwkv_server.preflight import nvidia_smi, probes
from rwkv_server.preflight.machine import Machine, Reading, look


def read_cuda(vendor: str, machine: Machine) -> list[Reading]:
    """One reading per tool."""
    if vendor != "nvidia":
        return [Reading(vendor, None, "only NVIDIA drivers have a CUDA version")]
    return [
        look("nvidia-smi", lambda: nvidia_smi.cuda_version(machine)),
        look(probes.NVML, lambda: probes.text(machine, probes.NVML, "cuda")),
    ]
