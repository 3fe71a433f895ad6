"""Uploaded .pth initial states: read by a process that can do nothing else, and made a snapshot.

A state-tuned .pth holds the WKV state that each layer starts from; the token shifts are zero. The
process has no environment, may open neither file nor socket, and has bounded memory and time; what
it says is compared with what was asked for.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from rwkv_server.states.errors import StateCorrupt, StateError, StateIncompatible
from rwkv_server.states.layout import StateLayout, TensorSpec

SCRIPT = Path(__file__).with_name("pth_child.py")
SECONDS = 60.0
# Names, a pickle and checksums around the tensors.
ROOM = 1 << 20
_MAX_MESSAGE = 1000


def largest_pth(layout: StateLayout) -> int:
    """Bytes that an initial state may have as .pth."""
    return sum(tensor.nbytes for tensor in _states(layout)) + ROOM


async def read_initial_state(content: bytes, layout: StateLayout, into: memoryview) -> None:
    """Fill a slot with the initial state in a .pth file.

    Args:
        content: the whole file.
        layout: of the model.
        into: a slot's bytes; void after an error.

    Raises:
        StateCorrupt: it is no checkpoint, or holds more than tensors.
        StateIncompatible: it is of another model.
    """
    states = _states(layout)
    found = await _ask(content, len(states), states[0].shape)
    if len(found) != sum(tensor.nbytes for tensor in states):
        raise StateCorrupt("the upload can't be read: its tensors have another size than they say")
    into[:] = bytes(layout.nbytes)
    done = 0
    for tensor in states:
        into[tensor.offset : tensor.offset + tensor.nbytes] = found[done : done + tensor.nbytes]
        done += tensor.nbytes


def _states(layout: StateLayout) -> list[TensorSpec]:
    return [tensor for tensor in layout.tensors if tensor.name.endswith(".wkv")]


async def _ask(content: bytes, layers: int, shape: tuple[int, ...]) -> bytes:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-I", "-B", str(SCRIPT), json.dumps({"layers": layers, "shape": list(shape)})),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
        cwd="/",
        start_new_session=True,
    )
    try:
        output, _ = await asyncio.wait_for(process.communicate(content), SECONDS)
    except asyncio.TimeoutError:
        raise StateCorrupt(f"the upload can't be read: it took more than {SECONDS:g} s") from None
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return _believed(output, process.returncode)


def _believed(output: bytes, code: int | None) -> bytes:
    line, _, found = output.partition(b"\n")
    try:
        answer = json.loads(line)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise StateCorrupt(
            f"the upload can't be read: the process that parses it ended with {code}: it is no "
            "initial state"
        )
    if "refused" in answer:
        kind: type[StateError] = StateCorrupt
        if answer["refused"] == "incompatible":
            kind = StateIncompatible
        raise kind(str(answer.get("message"))[:_MAX_MESSAGE])
    return found
