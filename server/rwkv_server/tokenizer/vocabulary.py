"""The World vocabulary: 65,529 byte strings, numbered from 1; 0 ends a document.

Numbers and bytes come from the package `pyrwkv-tokenizer`. Nothing here needs vLLM or transformers.
"""

from __future__ import annotations

import ast
import hashlib
from importlib import util
from pathlib import Path

from rwkv_server.model import file_names

# The name under which vLLM knows what belongs to these models.
MODE = "rwkv"
PACKAGE = "pyrwkv_tokenizer"
END = 0
LARGEST = 65529
# Embeddings have a round number of rows; those above LARGEST are never trained.
PADDED = 65536


def find_file() -> Path:
    """The vocabulary's file inside the installed package, which isn't imported."""
    found = util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"the package {PACKAGE} is not installed")
    return Path(found.origin).parent / file_names.VOCABULARY


def read_tokens(path: Path) -> dict[int, bytes]:
    """Number → bytes of every token in a vocabulary file.

    A line is the number, a Python literal of text or bytes, and its length in bytes.
    """
    lines = path.read_text(encoding="utf-8").splitlines()
    numbers = [int(line.partition(" ")[0]) for line in lines]
    # All literals in one go: half the time of one by one, and each start waits for this.
    literals = ",".join(line.partition(" ")[2].rpartition(" ")[0] for line in lines)
    values: list[str | bytes] = ast.literal_eval(f"[{literals}]")
    tokens = [value.encode() if isinstance(value, str) else value for value in values]
    return dict(zip(numbers, tokens, strict=True))


def is_world(path: Path) -> bool:
    """Whether a file holds the World vocabulary; line endings may differ."""
    return _digest(path) == _digest(find_file())


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()
