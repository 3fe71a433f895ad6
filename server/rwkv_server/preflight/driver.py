"""The device driver's version."""

from __future__ import annotations

from rwkv_server.preflight import install_info, npu_smi, nvidia_smi, probes
from rwkv_server.preflight.machine import Machine, Reading, Unreadable, look

# Says where the driver was installed on the host; mounted into containers beside the driver.
ASCEND_INSTALL = "/etc/ascend_install.info"
ASCEND_DEFAULT = "/usr/local/Ascend"


def read_driver(vendor: str, machine: Machine) -> list[Reading]:
    """One reading per place."""
    if vendor == "ascend":
        path = f"{_ascend_folder(machine)}/driver/version.info"
        return [
            look(path, lambda: install_info.parse(machine.read(path)).get("version")),
            look("npu-smi", lambda: npu_smi.driver_version(machine)),
        ]
    if vendor == "nvidia":
        return [
            look("nvidia-smi", lambda: nvidia_smi.gpus(machine)[0].driver),
            look(probes.NVML, lambda: probes.text(machine, probes.NVML, "driver")),
        ]
    return [Reading(vendor, None, "stacks of this vendor have no device driver")]


def _ascend_folder(machine: Machine) -> str:
    try:
        told = install_info.parse(machine.read(ASCEND_INSTALL))
    except Unreadable:
        return ASCEND_DEFAULT
    return told.get("driver_install_path_param", ASCEND_DEFAULT).rstrip("/")
