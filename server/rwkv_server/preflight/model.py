"""Is there an RWKV-7 at the configured path that this engine can serve, and which one is it.

Headers and small JSON files are read first, so that a wrong model is refused before its gigabytes
are hashed.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rwkv_server.errors import ModelInvalid
from rwkv_server.model import config as model_config
from rwkv_server.model import state_layout, weights
from rwkv_server.preflight import digest, json_file, promised, tensor_index, tokenizer
from rwkv_server.preflight.location import Location

log = logging.getLogger(__name__)

WRONG_END = "%s: eos_token_id is 2, World models end with 0: 0 is used"
STORED = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
DTYPES = {"Float32": "float32", "Float16": "float16", "BFloat16": "bfloat16"}


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a model that passed the check.

    Attributes:
        digest: `sha256:` and the hash of the weight files, see `digest.py`.
        format: of the files that the model came in: SafeTensors or PTH.
        dtype: what the engine computes in, as torch names it.
        state_bytes: one session's recurrent state.
        parameters: number of weights.
        world: it brings no tokenizer, so it gets the World tokenizer and chat template.
        wrong_end: its generation_config.json names the format's default end, not its own.
    """

    path: Path
    digest: str
    format: str
    dtype: str
    vocab_size: int
    state_bytes: int
    parameters: int
    world: bool = False
    wrong_end: bool = False


def check_model(
    location: Location, dtype: str, vendor: str, on_hashed: Callable[[int], None]
) -> ModelInfo:
    """Check a model's files, which are safetensors by now, and hash its weights.

    Args:
        location: the folder, and the format that its weights came in.
        dtype: what engine.yaml wants to compute in.
        vendor: of the hardware stack, which decides what dtype Auto means.
        on_hashed: told the percentage of the weights hashed so far.

    Raises:
        ModelInvalid: what is there can't be served; names the file and the tensor.
    """
    try:
        return _check(location, dtype, vendor, on_hashed)
    except OSError as error:
        raise ModelInvalid(f"{error.filename} can't be read: {error.strerror}") from None


def stored_dtype(tensors: dict[str, tensor_index.Tensor]) -> str:
    """The torch name of the type that most weights are stored in."""
    sizes: Counter[str] = Counter()
    for tensor in tensors.values():
        sizes[tensor.dtype] += math.prod(tensor.shape)
    return STORED[sizes.most_common(1)[0][0]]


def resolve_dtype(wanted: str, stored: str, vendor: str) -> str:
    """The torch name of the dtype to compute in.

    Auto keeps what is stored. CPUs have no fp16 arithmetic worth using, and bfloat16 would change
    answers, so there fp16 weights are computed in fp32.
    """
    if wanted != "Auto":
        return DTYPES[wanted]
    if vendor == "cpu" and stored == "float16":
        return "float32"
    return stored


def _check(
    location: Location, dtype: str, vendor: str, on_hashed: Callable[[int], None]
) -> ModelInfo:
    path = location.folder
    config = read_config(path)
    files = tensor_index.weight_files(path)
    missing = [file.name for file in files if not file.exists()]
    if missing:
        raise ModelInvalid(f"{path} lacks the weight file {missing[0]}, which its index names")
    tensors = tensor_index.read_tensors(files)
    _check_tensors(config, tensors, path)
    world = tokenizer.check_tokenizer(path, config.vocab_size)
    computed = resolve_dtype(dtype, stored_dtype(tensors), vendor)
    return ModelInfo(
        path=path,
        digest=digest.hash_files(files, promised.read_digests(path), on_hashed),
        format=location.format,
        dtype=computed,
        vocab_size=config.vocab_size,
        state_bytes=state_layout.session_bytes(config, computed),
        parameters=sum(math.prod(tensor.shape) for tensor in tensors.values()),
        world=world,
        wrong_end=names_wrong_end(path, config.vocab_size),
    )


def names_wrong_end(path: Path, vocab_size: int) -> bool:
    """Whether generation_config.json has to be overridden, as config.json is by its reader."""
    file = path / "generation_config.json"
    raw = json_file.read_object(file) if file.exists() else {}
    wrong = model_config.has_wrong_end({**raw, "vocab_size": vocab_size})
    if wrong:
        log.info(WRONG_END, file)
    return wrong


def read_config(path: Path) -> model_config.RWKV7Config:
    """The parsed config.json of the folder `path`; ModelInvalid if it is another architecture's."""
    raw = json_file.read_object(path / "config.json")
    architectures = raw.get("architectures")
    if not isinstance(architectures, list) or model_config.ARCHITECTURE not in architectures:
        raise ModelInvalid(
            f"{path}/config.json: architectures doesn't hold {model_config.ARCHITECTURE}",
            found=repr(architectures)[:200],
            wanted=model_config.ARCHITECTURE,
        )
    if model_config.has_wrong_end(raw):
        log.info(WRONG_END, path / "config.json")
    return model_config.parse_config(raw)


def _check_tensors(
    config: model_config.RWKV7Config, tensors: dict[str, tensor_index.Tensor], path: Path
) -> None:
    for name, tensor in tensors.items():
        if tensor.dtype not in STORED:
            raise ModelInvalid(
                f"{path / tensor.file}: tensor {name} is stored as {tensor.dtype}",
                found=tensor.dtype,
                wanted=" or ".join(STORED),
            )
    if config.num_hidden_layers > len(tensors):
        raise ModelInvalid(
            f"{path}/config.json: num_hidden_layers is {config.num_hidden_layers}, "
            f"but the weight files hold {len(tensors)} tensors",
            found=config.num_hidden_layers,
            wanted=f"at most {len(tensors)}",
        )
    differences = weights.find_differences(
        config, {name: tensor.shape for name, tensor in tensors.items()}
    )
    if differences:
        first = differences[0]
        file = tensors[first.tensor].file if first.tensor in tensors else "the weight files"
        more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
        raise ModelInvalid(
            f"{path}: {file}: tensor {first}{more}",
            found=None if first.found is None else list(first.found),
            wanted=None if first.wanted is None else list(first.wanted),
        )
