"""Where a model's weights are and in which format, without opening them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rwkv_server.errors import ModelInvalid, ModelNotFound
from rwkv_server.model import file_names

Format = Literal["SafeTensors", "PTH"]


@dataclass(frozen=True)
class Location:
    """A model that is there.

    Attributes:
        folder: holds config and tokenizer.
        format: of the weights.
        pth: the checkpoint, for the format PTH.
    """

    folder: Path
    format: Format
    pth: Path | None = None


def find_model(path: Path, wanted_format: str, files: list[str] | None = None) -> Location:
    """Find the weights at `path`: a folder, or a .pth file with its tokenizer beside it.

    Args:
        path: what engine.yaml or a user names.
        wanted_format: Auto, SafeTensors or PTH.
        files: names that choose among several checkpoints.

    Raises:
        ModelNotFound: there is nothing.
        ModelInvalid: there are no weights, or more than one model's.
    """
    if not path.exists():
        raise ModelNotFound(
            f"there is no {path}: check the volume and the path in spec.model.source"
        )
    if path.is_file():
        if path.suffix != ".pth" or wanted_format == "SafeTensors":
            wanted = "a folder with config.json" + (
                "" if wanted_format == "SafeTensors" else ", or a .pth file"
            )
            raise ModelInvalid(f"{path} is a file, wanted {wanted}", found="a file", wanted=wanted)
        return Location(path.parent, "PTH", path)
    safetensors = sorted(file.name for file in path.glob("*.safetensors"))
    found = {file.name for file in path.glob("*.pth")}
    checkpoints = sorted(found - {file_names.INITIAL_STATE})
    if files:
        checkpoints = [name for name in checkpoints if name in files] or checkpoints
    chosen = choose_format(safetensors, checkpoints, wanted_format, str(path))
    if chosen == "SafeTensors":
        if file_names.INITIAL_STATE in found:
            raise ModelInvalid(
                f"{path} holds {file_names.INITIAL_STATE} beside safetensors: "
                "put it beside the model's .pth, it becomes a part of what that is converted to",
                found=file_names.INITIAL_STATE,
                wanted="no such file, or a .pth checkpoint beside it",
            )
        return Location(path, chosen)
    return Location(path, chosen, path / checkpoints[0])


def choose_format(
    safetensors: list[str], checkpoints: list[str], wanted: str, place: str
) -> Format:
    """The format to serve from these weight files; `place` names them in errors.

    Raises:
        ModelInvalid: none or several would do.
    """
    if not safetensors and not checkpoints:
        raise ModelInvalid(
            f"{place} holds no weights: neither a .safetensors nor a .pth file",
            found="no weights",
            wanted="model.safetensors or one .pth file",
        )
    if wanted == "Auto" and safetensors and checkpoints:
        raise ModelInvalid(
            f"{place} holds both {safetensors[0]} and {checkpoints[0]}: "
            "set spec.model.format to SafeTensors or PTH",
            found="both formats",
            wanted="one format",
        )
    if wanted == "SafeTensors" or (wanted == "Auto" and safetensors):
        if not safetensors:
            raise ModelInvalid(
                f"{place} holds no .safetensors file, only {checkpoints[0]}: "
                "set spec.model.format to PTH or Auto",
                found="PTH",
                wanted="SafeTensors",
            )
        return "SafeTensors"
    if len(checkpoints) != 1:
        found = ", ".join(checkpoints[:8]) or safetensors[0]
        raise ModelInvalid(
            f"{place} holds {len(checkpoints)} .pth files, wanted one: "
            "name the one to serve in the source's path or files",
            found=found,
            wanted="one .pth file",
        )
    return "PTH"
