"""Asks torch_npu about the chip, in a process of its own: it takes seconds and may crash.

Run as `python -m rwkv_server.preflight.npu_probe`; prints one JSON object. Without CANN's libraries
the import fails, and its last line says which one is missing.
"""

from __future__ import annotations

import json
import os
from typing import Any


def ask() -> dict[str, Any]:
    """What torch_npu says; raises ImportError where it can't be loaded."""
    # torch would load torch_npu by itself, and hide in its own error why that fails.
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import torch
    import torch_npu

    count = torch.npu.device_count()
    return {
        "devices": [torch.npu.get_device_name(index) for index in range(count)],
        "soc": torch_npu.npu.get_soc_version() if count else None,
        "cann": getattr(torch.version, "cann", None),
    }


if __name__ == "__main__":
    try:
        print(json.dumps(ask()))
    except ImportError as error:
        # The vendor's message has a whole paragraph; the loader's own reason comes first.
        raise SystemExit(f"{type(error).__name__}: {str(error).split('. ')[0]}") from None
