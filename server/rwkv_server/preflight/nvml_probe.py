"""Asks NVIDIA's management library, in a process of its own: a driver's library may crash.

Run as `python -m rwkv_server.preflight.nvml_probe [library]`; prints one JSON object. The library
comes with the driver, so this works in images that have no nvidia-smi.
"""

from __future__ import annotations

import ctypes
import json
import sys
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
_TEXT = 96


def ask(library: str = LIBRARY) -> dict[str, Any]:
    """Driver version, highest CUDA version, and each device's name and compute capability."""
    nvml = ctypes.CDLL(library)
    _check(nvml.nvmlInit_v2(), "nvmlInit")
    text = ctypes.create_string_buffer(_TEXT)
    _check(nvml.nvmlSystemGetDriverVersion(text, _TEXT), "nvmlSystemGetDriverVersion")
    driver = text.value.decode()
    cuda, count = ctypes.c_int(), ctypes.c_uint()
    _check(nvml.nvmlSystemGetCudaDriverVersion_v2(ctypes.byref(cuda)), "CudaDriverVersion")
    _check(nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)), "nvmlDeviceGetCount")
    return {
        "driver": driver,
        "cuda": f"{cuda.value // 1000}.{cuda.value % 1000 // 10}",
        "devices": [_device(nvml, index) for index in range(count.value)],
    }


def _device(nvml: ctypes.CDLL, index: int) -> dict[str, str]:
    handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(_TEXT)
    major, minor = ctypes.c_int(), ctypes.c_int()
    _check(nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)), "GetHandleByIndex")
    _check(nvml.nvmlDeviceGetName(handle, text, _TEXT), "nvmlDeviceGetName")
    capability = nvml.nvmlDeviceGetCudaComputeCapability(
        handle, ctypes.byref(major), ctypes.byref(minor)
    )
    _check(capability, "CudaComputeCapability")
    return {"name": text.value.decode(), "computeCapability": f"{major.value}.{minor.value}"}


def _check(code: int, call: str) -> None:
    if code:
        raise OSError(f"{call} answers with error {code}")


if __name__ == "__main__":
    try:
        print(json.dumps(ask(*sys.argv[1:])))
    except OSError as error:
        raise SystemExit(f"NVML can't be asked: {error}") from None
