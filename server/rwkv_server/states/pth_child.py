"""The process that reads a stranger's .pth: a script, started by `uploads.py`, by its path.

Gets the wanted shape as its argument and the file on standard input, gives up every right, and
writes a line of JSON to standard output: {"refused": kind, "message": …}, or {"bytes": n} and then
the WKV state of all layers as n bytes of fp32. Everything is imported before the rights are gone.
"""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy

from rwkv_server.checkpoint import sandbox, unpickle
from rwkv_server.checkpoint.archive import Archive, StoredTensor
from rwkv_server.errors import ModelInvalid
from rwkv_server.model import pth_names

NAME = Path("the upload")


class Refused(Exception):
    """The file is a checkpoint, but not the initial state that is wanted."""


def read_states(content: bytes, layers: int, shape: tuple[int, ...]) -> bytes:
    """The initial WKV state of each layer, in fp32, one after the other.

    Raises:
        ModelInvalid: it is no checkpoint.
        Refused: it holds other tensors.
    """
    with Archive(NAME, io.BytesIO(content), _describe) as archive:
        wanted = [f"blocks.{layer}.{pth_names.TIME_STATE}" for layer in range(layers)]
        surplus = sorted(archive.tensors.keys() - set(wanted))
        missing = [name for name in wanted if name not in archive.tensors]
        for name in [*missing, *surplus]:
            raise Refused(
                f"{NAME} has {len(archive.tensors)} tensors, wanted {layers}, blocks.0."
                f"{pth_names.TIME_STATE} to blocks.{layers - 1}: {ascii(name)[:100]} is "
                + ("missing" if missing else "none of them")
            )
        return b"".join(_read(archive, archive.tensors[name], shape) for name in wanted)


def _read(archive: Archive, tensor: StoredTensor, shape: tuple[int, ...]) -> bytes:
    if tensor.shape != shape:
        raise Refused(
            f"{NAME}: {tensor.name}: found {list(tensor.shape)}, wanted {list(shape)}: it is of "
            "another model"
        )
    bits = archive.read(tensor)
    if tensor.dtype == "BF16":
        values: Any = (bits.astype("<u4") << 16).view("<f4")
    else:
        values = numpy.ascontiguousarray(bits).view("<f2" if tensor.dtype == "F16" else "<f4")
    content: bytes = values.astype("<f4").tobytes()
    return content


def _describe(pickled: bytes, source: Path) -> list[Any]:
    return sandbox.believe(unpickle.describe(pickled), source)


def main() -> None:
    """Answer for one file."""
    wish = json.loads(sys.argv[1])
    content = sys.stdin.buffer.read()
    codecs.lookup("cp437")  # names in zip archives; found later, it would be a file to open
    unpickle.give_up_rights()
    found = b""
    try:
        found = read_states(content, wish["layers"], tuple(wish["shape"]))
        answer: dict[str, Any] = {"bytes": len(found)}
    except ModelInvalid as error:
        answer = {"refused": "corrupt", "message": error.message}
    except Refused as error:
        answer = {"refused": "incompatible", "message": str(error)}
    except MemoryError:
        answer = {"refused": "corrupt", "message": f"{NAME} asks for too much memory"}
    sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n" + found)


if __name__ == "__main__":
    main()
