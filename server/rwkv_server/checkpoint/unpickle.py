"""The process that parses a stranger's pickle: a script, started by `sandbox.py`, by its path.

Reads the pickle from standard input, gives up every right that a process can give up, parses it
with all but a handful of names refused, and prints JSON: which tensors it describes, or why not.
Standard library only, and all of it imported before the limits hold: afterwards no file, socket or
process can be opened.
"""

from __future__ import annotations

import collections
import io
import json
import pickle
import resource
import sys
from typing import Any

MEMORY = 1 << 30
CPU_SECONDS = 60
MAX_TENSORS = 100_000

STORAGES = {
    "FloatStorage": "F32", "HalfStorage": "F16", "BFloat16Storage": "BF16", "DoubleStorage": "F64",
    "LongStorage": "I64", "IntStorage": "I32", "ShortStorage": "I16", "CharStorage": "I8",
    "ByteStorage": "U8", "BoolStorage": "BOOL",
}  # fmt: skip


class Refused(Exception):
    """The pickle asks for something that no checkpoint needs."""


class Storage:
    """A named range of bytes beside the pickle."""

    def __init__(self, key: str, dtype: str, count: int) -> None:
        """Keep where it is and what it holds."""
        self.key, self.dtype, self.count = key, dtype, count


class Tensor:
    """A view of a storage."""

    def __init__(self, storage: Storage, offset: int, shape: Any, strides: Any) -> None:
        """Keep what it shows of which storage."""
        self.storage, self.offset = storage, offset
        self.shape, self.strides = list(shape), list(strides)


class StorageType:
    """Stands for torch's storage class of one element type."""

    def __init__(self, dtype: str) -> None:
        """Keep the type's name."""
        self.dtype = dtype


def rebuild_tensor(storage: Any, offset: int, shape: Any, strides: Any, *rest: Any) -> Tensor:
    """Stands for torch's function of that purpose."""
    if not isinstance(storage, Storage):
        raise Refused("a tensor without a storage")
    return Tensor(storage, offset, shape, strides)


def rebuild_parameter(data: Any, *rest: Any) -> Any:
    """Stands for torch's function of that purpose."""
    return data


NAMES: dict[tuple[str, str], Any] = {
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("torch._utils", "_rebuild_tensor_v2"): rebuild_tensor,
    ("torch._utils", "_rebuild_parameter"): rebuild_parameter,
    **{("torch", name): StorageType(dtype) for name, dtype in STORAGES.items()},
}


class Reader(pickle.Unpickler):
    """An unpickler that knows NAMES and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a name; every other name is refused."""
        try:
            return NAMES[module, name]
        except KeyError:
            raise Refused(f"{module}.{name}"[:200]) from None

    def persistent_load(self, pid: Any) -> Storage:
        """A storage, from torch's ('storage', type, key, device, count)."""
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage":
            raise Refused("a reference that is no storage")
        _, kind, key, _, count = pid
        if not isinstance(kind, StorageType) or not isinstance(key, str):
            raise Refused("a storage of an unknown type")
        return Storage(key, kind.dtype, int(count))


def give_up_rights() -> None:
    """No more memory than MEMORY, and no file, socket, process or core dump at all."""
    for what, limit in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, 0),
    ):
        resource.setrlimit(what, (limit, limit))


def describe(content: bytes) -> dict[str, Any]:
    """{"tensors": [[name, storage, dtype, offset, shape, strides], …]} or {"error": …}."""
    try:
        found = Reader(io.BytesIO(content)).load()
        if not isinstance(found, dict) or len(found) > MAX_TENSORS:
            return {"error": "it holds no table of tensors"}
        tensors = []
        for name, tensor in found.items():
            if not isinstance(name, str) or not isinstance(tensor, Tensor):
                return {"error": f"its entry {str(name)[:200]} is no tensor"}
            storage = tensor.storage
            place = [storage.key, storage.dtype, tensor.offset, tensor.shape, tensor.strides]
            tensors.append([name, *place])
        return {"tensors": tensors}
    except Refused as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"error": "it asks for more memory than a checkpoint's table needs"}
    except Exception as error:
        return {"error": f"it is broken ({type(error).__name__})"}


if __name__ == "__main__":
    pickled = sys.stdin.buffer.read()
    give_up_rights()
    sys.stdout.write(json.dumps(describe(pickled)))
