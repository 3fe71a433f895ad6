"""CANN's version, in every place that is known to tell it.

The toolkit's install file moved with CANN 8.5; an image may hold either or, with links, both. An
engine image's tag doesn't tell the version: later builds of one release moved to another CANN.
"""

from __future__ import annotations

import functools

from rwkv_server.preflight import install_info, probes
from rwkv_server.preflight.machine import Machine, Reading, look

HOME = "ASCEND_HOME_PATH"
PLACES = (
    "/usr/local/Ascend/cann",
    "/usr/local/Ascend/ascend-toolkit/latest",
)
FILES = ("ascend_toolkit_install.info", "ascend_ops_install.info")


def read_cann(vendor: str, machine: Machine) -> list[Reading]:
    """One reading per install file found, and what torch says."""
    if vendor != "ascend":
        return [Reading(vendor, None, "only Ascend stacks have CANN")]
    folders = [*filter(None, [machine.variable(HOME)]), *PLACES]
    paths = dict.fromkeys(
        path
        for folder in folders
        for file in FILES
        for path in machine.find(f"{folder.rstrip('/')}/*-linux/{file}")
    )
    readings = [look(path, functools.partial(_version_in, machine, path)) for path in paths]
    if not paths:
        missing = f"no {' or '.join(FILES)} below {', '.join(folders)}"
        readings.append(Reading("install files", None, missing))
    told = look("torch.version.cann", lambda: probes.text(machine, probes.TORCH_NPU, "cann"))
    return [*readings, told]


def _version_in(machine: Machine, path: str) -> str | None:
    return install_info.parse(machine.read(path)).get("version")
