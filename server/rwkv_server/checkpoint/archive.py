"""Read the tensors of a .pth file: a zip archive of one pickle and one entry per storage.

Every number that the pickle gives is compared with the size of the bytes it speaks of before it is
used. Elements stay what they are: this moves bytes and never computes.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy
from numpy.lib.stride_tricks import as_strided

from rwkv_server.checkpoint import sandbox
from rwkv_server.errors import ModelInvalid

MAX_PICKLE_BYTES = 64 << 20
# The unsigned type of the same width: bfloat16 has no type here, and none is needed.
WIDTHS = {"F32": "<u4", "F16": "<u2", "BF16": "<u2"}
MAX_DIMENSIONS = 8
_MAX_COUNT = 1 << 48
_UNREADABLE = (zipfile.BadZipFile, RuntimeError, EOFError, OSError)


@dataclass(frozen=True)
class StoredTensor:
    """Where one tensor's elements lie; `offset` and `strides` count elements."""

    name: str
    storage: str
    dtype: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Archive:
    """An open .pth file; use as a context manager.

    Attributes:
        tensors: by their names in the file.
    """

    def __init__(
        self,
        path: Path,
        file: BinaryIO | None = None,
        describe: Callable[[bytes, Path], list[Any]] | None = None,
    ) -> None:
        """Open `path` and read its table of tensors.

        Args:
            path: of the checkpoint, or what errors call an open `file`.
            file: the checkpoint's bytes, where they aren't at `path`.
            describe: who parses the pickle; for a process that has given up its rights already.

        Raises:
            ModelInvalid: it is no checkpoint, was cut short, or holds more than weights.
        """
        self._path = path
        try:
            self._zip = zipfile.ZipFile(path if file is None else file)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError):
            raise ModelInvalid(
                f"{path} is not a .pth checkpoint: its copy was cut short, or it is in the format "
                "from before PyTorch 1.6; save it again with torch.save",
                found="no zip archive",
                wanted="a zip archive",
            ) from None
        except OSError as error:
            raise ModelInvalid(f"{path} can't be read: {error.strerror}") from None
        try:
            self._root, pickled = self._read_pickle()
            entries = (describe or sandbox.describe_pickle)(pickled, path)
            self.tensors = {tensor.name: tensor for tensor in map(self._check, entries)}
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> Archive:
        """The archive itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the file."""
        self._zip.close()

    def read(self, tensor: StoredTensor) -> numpy.ndarray[Any, Any]:
        """The elements as unsigned integers of their width, in the tensor's shape.

        Raises:
            ModelInvalid: the bytes don't have the archive's own length and checksum.
        """
        width = numpy.dtype(WIDTHS[tensor.dtype])
        try:
            content = self._read_stored(f"{self._root}data/{tensor.storage}")
        except (KeyError, *_UNREADABLE) as error:
            raise ModelInvalid(f"{self._path}: tensor {tensor.name} is damaged: {error}") from None
        flat = numpy.frombuffer(content, width)[tensor.offset :]
        strides = tuple(stride * width.itemsize for stride in tensor.strides)
        return as_strided(flat, tensor.shape, strides, writeable=False)

    def _read_pickle(self) -> tuple[str, bytes]:
        found = [name for name in self._zip.namelist() if name.endswith("/data.pkl")]
        if len(found) != 1 or found[0].count("/") != 1:
            raise ModelInvalid(f"{self._path} is not a .pth checkpoint: no data.pkl in it")
        root = found[0].removesuffix("data.pkl")
        entry = self._zip.getinfo(found[0])
        if entry.file_size > MAX_PICKLE_BYTES:
            raise ModelInvalid(f"{self._path}: its table of tensors has {entry.file_size} bytes")
        if self._content(f"{root}byteorder", b"little") != b"little":
            raise ModelInvalid(f"{self._path} was saved on a big-endian machine")
        return root, self._content(found[0], b"")

    def _content(self, name: str, absent: bytes) -> bytes:
        try:
            return self._read_stored(name)
        except KeyError:
            return absent
        except _UNREADABLE as error:
            raise ModelInvalid(f"{self._path}: {name} can't be read: {error}") from None

    def _read_stored(self, name: str) -> bytes:
        """An entry's bytes; views reach over all that the directory promises, so count them."""
        entry = self._zip.getinfo(name)
        if not _is_stored(entry):
            raise zipfile.BadZipFile("it is not stored as torch does")
        content = self._zip.read(entry)
        if len(content) != entry.file_size:
            raise zipfile.BadZipFile(f"it has {len(content)} bytes, not {entry.file_size}")
        return content

    def _check(self, entry: Any) -> StoredTensor:
        if not isinstance(entry, list) or len(entry) != 6:
            raise ModelInvalid(f"{self._path}: its table of tensors is broken")
        name, storage, dtype, offset, shape, strides = entry
        if not all(isinstance(text, str) and text.isprintable() for text in (name, storage, dtype)):
            raise ModelInvalid(f"{self._path}: tensor {ascii(name)[:200]} has an odd name or type")
        if not isinstance(shape, list) or not isinstance(strides, list):
            raise ModelInvalid(f"{self._path}: tensor {name} has an odd shape")
        counts = [offset, *shape, *strides]
        if len(shape) > MAX_DIMENSIONS or not all(map(_is_count, counts)):
            raise ModelInvalid(f"{self._path}: tensor {name} has an odd shape")
        if dtype not in WIDTHS:
            raise ModelInvalid(
                f"{self._path}: tensor {name} is stored as {dtype}",
                found=dtype,
                wanted=" or ".join(WIDTHS),
            )
        tensor = StoredTensor(name, storage, dtype, offset, tuple(shape), tuple(strides))
        self._check_bytes(tensor)
        return tensor

    def _check_bytes(self, tensor: StoredTensor) -> None:
        """Every element must lie in the storage, and no tensor may be larger than its storage."""
        try:
            found = self._zip.getinfo(f"{self._root}data/{tensor.storage}")
        except KeyError:
            raise ModelInvalid(
                f"{self._path}: the bytes of tensor {tensor.name} are missing"
            ) from None
        width = numpy.dtype(WIDTHS[tensor.dtype]).itemsize
        whole = _is_stored(found) and found.file_size % width == 0
        if not whole or len(tensor.shape) != len(tensor.strides):
            raise ModelInvalid(f"{self._path}: tensor {tensor.name} is not stored as torch does")
        count = found.file_size // width
        last = tensor.offset + sum(
            (size - 1) * stride for size, stride in zip(tensor.shape, tensor.strides, strict=True)
        )
        if math.prod(tensor.shape) > count or last >= count or 0 in tensor.shape:
            raise ModelInvalid(
                f"{self._path}: tensor {tensor.name} of shape {list(tensor.shape)} reaches beyond "
                f"its {count} stored elements",
                found=count,
                wanted=math.prod(tensor.shape),
            )


def _is_stored(entry: zipfile.ZipInfo) -> bool:
    return entry.compress_type == zipfile.ZIP_STORED and entry.compress_size == entry.file_size


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _MAX_COUNT
