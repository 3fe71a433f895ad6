"""Which generation of Ascend chips an engine image was built for, and whether torch_npu loads.

vllm-ascend holds kernels compiled for one generation and refuses others only deep inside a start;
CANN itself says no more than "socversion X of bin package does not match Y".
"""

from __future__ import annotations

import re

from rwkv_server.preflight import install_info, probes
from rwkv_server.preflight.machine import Machine, Reading, Unreadable, look

# SoC ids as vllm-ascend groups them, and the chip names that belong to each group.
GENERATIONS = {
    "A2": range(220, 226),
    "A3": range(250, 256),
    "_310P": range(200, 206),
    "A5": range(260, 261),
}
_NAMES = (
    (re.compile(r"ascend910b\d.*"), "A2"),
    (re.compile(r"ascend910_93\d\d"), "A3"),
    (re.compile(r"ascend310p.*"), "_310P"),
)
_DEVICE_TYPE = re.compile(r"""__device_type__\s*=\s*['"](\w+)['"]""")
_KERNELS = "_cann_ops_custom/vendors/*/op_impl/ai_core/tbe/kernel/ascend*"
_COMPILER = "_cann_ops_custom/vendors/*/version.info"


def generation_of_chip(name: str) -> str | None:
    """A chip's generation by its name, or None for those that no build supports."""
    plain = name.lower().replace(" ", "")
    return next((group for pattern, group in _NAMES if pattern.fullmatch(plain)), None)


def generation_of_soc(soc: int) -> str | None:
    """A chip's generation by its SoC id."""
    return next((group for group, ids in GENERATIONS.items() if soc in ids), None)


def read_framework(machine: Machine) -> list[Reading]:
    """Whether torch_npu can be loaded, which needs the driver's and CANN's libraries."""
    return [look("import torch_npu", lambda: "loads" if _loads(machine) else None)]


def read_kernels(machine: Machine) -> list[Reading]:
    """The generation that vllm-ascend was built for, and that of the chip's own SoC id."""
    return [
        look("vllm_ascend/_build_info.py", lambda: _built_for(machine)),
        look("torch_npu's SoC id", lambda: _soc_generation(machine)),
    ]


def describe_kernels(machine: Machine) -> str:
    """For people: the kernel folders in vllm-ascend and the CANN that compiled them."""
    try:
        package = machine.package_folder("vllm_ascend")
        folders = [path.rpartition("/")[2] for path in machine.find(f"{package}/{_KERNELS}")]
        infos = [machine.read(path) for path in machine.find(f"{package}/{_COMPILER}")]
    except Unreadable:
        return ""
    versions = [install_info.parse(info).get("custom_opp_compiler_version", "") for info in infos]
    compiled = ", ".join(filter(None, versions))
    return ", ".join([*folders, *([f"compiled with CANN {compiled}"] if compiled else [])])


def _loads(machine: Machine) -> bool:
    return bool(probes.ask(machine, probes.TORCH_NPU))


def _built_for(machine: Machine) -> str | None:
    folder = machine.package_folder("vllm_ascend")
    found = _DEVICE_TYPE.search(machine.read(f"{folder}/_build_info.py"))
    return found[1] if found else None


def _soc_generation(machine: Machine) -> str | None:
    soc = probes.ask(machine, probes.TORCH_NPU).get("soc")
    if not isinstance(soc, int):
        raise Unreadable("torch_npu tells no SoC id")
    return generation_of_soc(soc) or f"unknown SoC id {soc}"
