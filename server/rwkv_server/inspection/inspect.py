"""Gather everything there is to say about a model's files, in a folder or a .pth, without torch."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from rwkv_server.checkpoint import convert
from rwkv_server.checkpoint.archive import Archive
from rwkv_server.errors import ModelError
from rwkv_server.model import config as model_config
from rwkv_server.model import file_names, pth_config, pth_names, state_layout, weights
from rwkv_server.preflight import location, model, tensor_index, tokenizer
from rwkv_server.tokenizer import vocabulary

T = TypeVar("T")

# What the cpu engine's processes hold beside weights and states: 1.1 GB measured, and peaks.
BASE_BYTES = 1300 << 20
MAX_DIFFERENCES = 20


@dataclass
class Inspection:
    """What was found; what couldn't be learned stays None, and `problems` says why."""

    path: Path
    format: str | None = None
    files: dict[str, int] = field(default_factory=dict)
    config: model_config.RWKV7Config | None = None
    stored: dict[str, int] = field(default_factory=dict)
    tensors: int = 0
    parameters: int = 0
    tokenizer: str | None = None
    template: str | None = None
    sessions: int = 16
    problems: list[str] = field(default_factory=list)

    @property
    def dtype(self) -> str | None:
        """The type that most weights are stored in."""
        return max(self.stored, key=lambda name: self.stored[name]) if self.stored else None

    def state_bytes(self, dtype: str) -> int | None:
        """Bytes of one session's state with activations in `dtype`."""
        return None if self.config is None else state_layout.session_bytes(self.config, dtype)

    def memory_bytes(self, dtype: str) -> int | None:
        """What one replica needs: weights in `dtype`, the states of `sessions`, the process."""
        if self.config is None:
            return None
        states = state_layout.cache_bytes(self.config, dtype, self.sessions)
        return self.parameters * state_layout.DTYPE_BYTES[dtype] + states + BASE_BYTES

    def ask(self, question: Callable[[], T]) -> T | None:
        """The answer, or None and one more problem."""
        try:
            return question()
        except ModelError as error:
            self.problems.append(error.message)
        except OSError as error:
            self.problems.append(f"{error.filename} can't be read: {error.strerror}")
        return None


def inspect_model(path: Path, wanted_format: str = "Auto", sessions: int = 16) -> Inspection:
    """Everything about the model at `path`.

    Args:
        path: a folder, or a .pth file.
        wanted_format: Auto, SafeTensors or PTH, as in spec.model.format.
        sessions: as many states are counted in the memory needed.
    """
    found = Inspection(path, sessions=sessions)
    place = found.ask(lambda: location.find_model(path, wanted_format))
    folder = place.folder if place else path if path.is_dir() else path.parent
    if place is not None:
        found.format = place.format
    if place is not None and place.pth is not None:
        _inspect_pth(found, place.pth)
    elif folder.is_dir() and path.exists():
        _inspect_safetensors(found, folder)
    if path.exists():
        _inspect_side_files(found, folder)
    return found


def _inspect_safetensors(found: Inspection, folder: Path) -> None:
    found.config = found.ask(lambda: model.read_config(folder))
    tensors: dict[str, tensor_index.Tensor] = {}
    for file in found.ask(lambda: tensor_index.weight_files(folder)) or []:
        if not file.exists():
            found.problems.append(f"{folder} lacks the weight file {file.name}")
            continue
        found.files[file.name] = file.stat().st_size
        for name, tensor in (_ask_header(found, file) or {}).items():
            if name in tensors:
                found.problems.append(f"tensor {name} is in {tensors[name].file} and {file.name}")
            tensors[name] = tensor
    _count(found, {name: (tensor.dtype, tensor.shape) for name, tensor in tensors.items()})
    if found.config is not None and tensors:
        shapes = {name: tensor.shape for name, tensor in tensors.items()}
        _compare(found, found.config, shapes)


def _ask_header(found: Inspection, file: Path) -> dict[str, tensor_index.Tensor] | None:
    return found.ask(lambda: tensor_index.read_header(file))


def _inspect_pth(found: Inspection, pth: Path) -> None:
    found.files[pth.name] = pth.stat().st_size
    archive = found.ask(lambda: Archive(pth))
    if archive is None:
        return
    with archive:
        shapes = {name: tensor.shape for name, tensor in archive.tensors.items()}
        kept = {name: t for name, t in archive.tensors.items() if not pth_names.is_unused(name)}
        _count(found, {name: (tensor.dtype, tensor.shape) for name, tensor in kept.items()})
        raw = found.ask(lambda: convert.read_config(pth.parent) or pth_config.infer_config(shapes))
        found.config = found.ask(lambda: model_config.parse_config(raw)) if raw else None
        converted = {}
        for name in kept:
            target = pth_names.parse_name(name)
            if target is None:
                found.problems.append(f"{pth}: tensor {name} is not part of an RWKV-7")
            else:
                converted[target.name] = target.shape(shapes[name])
    if found.config is not None:
        _compare(found, found.config, converted)


def _count(found: Inspection, tensors: dict[str, tuple[str, tuple[int, ...]]]) -> None:
    sizes: Counter[str] = Counter()
    for name, (dtype, shape) in tensors.items():
        if dtype in model.STORED:
            sizes[model.STORED[dtype]] += math.prod(shape)
        else:
            found.problems.append(f"tensor {name} is stored as {dtype}")
    found.stored = dict(sizes)
    found.tensors = len(tensors)
    found.parameters = sum(math.prod(shape) for _, shape in tensors.values())


def _compare(
    found: Inspection,
    config: model_config.RWKV7Config,
    shapes: dict[str, tuple[int, ...]],
) -> None:
    if config.num_hidden_layers > len(shapes):
        found.problems.append(
            f"config.json: num_hidden_layers is {config.num_hidden_layers}, "
            f"but there are {len(shapes)} tensors"
        )
        return
    differences = weights.find_differences(config, shapes)
    found.problems += [f"tensor {difference}" for difference in differences[:MAX_DIFFERENCES]]
    if len(differences) > MAX_DIFFERENCES:
        found.problems.append(f"{len(differences) - MAX_DIFFERENCES} more tensors differ")


def _inspect_side_files(found: Inspection, folder: Path) -> None:
    config = found.config
    # Without a config there is no vocabulary to compare with: only what is broken is told.
    vocab_size = config.vocab_size if config else vocabulary.PADDED
    world = found.ask(lambda: tokenizer.check_tokenizer(folder, vocab_size))
    if (folder / file_names.TOKENIZER).exists():
        found.tokenizer = file_names.TOKENIZER
    elif world:
        found.tokenizer = "World, from the server"
    found.template = _find_template(folder, bool(world))
    if found.template is None:
        found.problems.append(
            f"{folder} has no chat template: chats are refused, completions work. "
            "Add chat_template.jinja or a chat_template in tokenizer_config.json."
        )


def _find_template(folder: Path, world: bool) -> str | None:
    # Of these, the World tokenizer knows only the first.
    for name in ("chat_template.jinja", "chat_template.json")[: 1 if world else 2]:
        if (folder / name).is_file():
            return name
    if world:
        return "World, from the server"
    try:
        raw = json.loads((folder / "tokenizer_config.json").read_bytes())
        return "tokenizer_config.json" if raw.get("chat_template") else None
    except (OSError, ValueError, AttributeError):
        return None
