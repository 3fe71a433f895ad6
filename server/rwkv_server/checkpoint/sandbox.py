"""Run the pickle parser in a process of its own: no environment, no secrets, limits, a deadline.

What comes back is JSON and believed only where `archive.py` has compared it with the file.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rwkv_server.errors import ModelInvalid

SCRIPT = Path(__file__).with_name("unpickle.py")
SECONDS = 120


def describe_pickle(content: bytes, source: Path) -> list[Any]:
    """The tensors that a pickle names, as [name, storage, dtype, offset, shape, strides].

    Raises:
        ModelInvalid: it names something else than weights, or is broken.
    """
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-B", str(SCRIPT)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={},
        cwd="/",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(content, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        raise ModelInvalid(
            f"{source}: parsing its table of tensors took more than {SECONDS} s"
        ) from None
    finally:
        process.kill()
        process.communicate()
    try:
        answer = json.loads(output)
    except ValueError:
        raise ModelInvalid(
            f"{source}: the process that parses it ended with {process.returncode}: the file is no "
            "checkpoint"
        ) from None
    return believe(answer, source)


def believe(answer: Any, source: Path) -> list[Any]:
    """The table of tensors that `unpickle.describe` answered.

    Raises:
        ModelInvalid: it answered why there is none.
    """
    if not isinstance(answer, dict):
        raise ModelInvalid(f"{source} is no checkpoint: its table of tensors is broken")
    if "refused" in answer:
        raise ModelInvalid(
            f"{source} is refused: its pickle calls {answer['refused']}, which weights never need. "
            "Nothing of it was run. Get the file from its publisher again, or as safetensors.",
            found=str(answer["refused"])[:200],
            wanted="tensors only",
        )
    tensors = answer.get("tensors")
    if not isinstance(tensors, list):
        raise ModelInvalid(f"{source} is no checkpoint: {answer.get('error')}")
    return tensors
