"""Which of a repository's files are a model to serve: few, named, at its root, and no code.

Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rwkv_server.errors import ModelInvalid
from rwkv_server.fetch.hub import RemoteFile
from rwkv_server.model import file_names
from rwkv_server.preflight import location

# Names that end up as paths on a volume: no folder, no leading dot or dash, nothing to escape.
SAFE_NAME = re.compile(r"\w[\w.\-]*")
_SHARD = re.compile(r".+-\d{5}-of-\d{5}\.safetensors")


def choose_files(
    listing: Iterable[RemoteFile], wanted_format: str, files: list[str], label: str
) -> list[RemoteFile]:
    """The files to download, small ones first, so that a wrong model is refused early.

    Args:
        listing: everything in the repository.
        wanted_format: Auto, SafeTensors or PTH.
        files: names that choose among several weight files; they can name nothing else.
        label: how errors name the repository.

    Raises:
        ModelInvalid: there are no weights, or several models' weights.
    """
    here = {file.name: file for file in listing if SAFE_NAME.fullmatch(file.name)}
    for name in files:
        if name not in here:
            raise ModelInvalid(
                f"{label} has no file {name} at its root", found="no such file", wanted=name
            )
        if not name.endswith((".safetensors", ".pth")):
            raise ModelInvalid(
                f"{label}: files names {name}, which holds no weights; leave it out, the model's "
                "other files come by themselves",
                found=name,
                wanted="names of .safetensors or .pth files",
            )
    safetensors = _choose_safetensors([n for n in here if n.endswith(".safetensors")], files)
    checkpoints = sorted({n for n in here if n.endswith(".pth")} - {file_names.INITIAL_STATE})
    checkpoints = [name for name in checkpoints if name in files] or checkpoints
    chosen_format = wanted_format
    if wanted_format == "Auto" and files:
        # A name that was given decides between the formats, too.
        if set(files) & set(checkpoints):
            chosen_format = "PTH"
        elif set(files) & set(safetensors):
            chosen_format = "SafeTensors"
    chosen = location.choose_format(safetensors, checkpoints, chosen_format, label)
    if chosen == "SafeTensors" and file_names.CONFIG not in here:
        raise ModelInvalid(f"{label} has no {file_names.CONFIG}", wanted=file_names.CONFIG)
    weights = safetensors if chosen == "SafeTensors" else checkpoints
    if file_names.SINGLE in weights and len(weights) > 1:
        raise ModelInvalid(
            f"{label}: files names {', '.join(weights)}, wanted one model's: "
            f"{file_names.SINGLE} is a whole one",
            found=", ".join(weights),
            wanted=file_names.SINGLE,
        )
    if chosen == "SafeTensors" and file_names.INDEX in here and _are_indexed(weights, files):
        weights = [*weights, file_names.INDEX]
    side = [name for name in file_names.SIDE_FILES if name in here]
    if chosen == "PTH" and file_names.INITIAL_STATE in here:
        side.append(file_names.INITIAL_STATE)
    names = {*weights, *side, *(name for name in files if name in here)}
    return sorted((here[name] for name in names), key=lambda file: (file.size, file.name))


def _are_indexed(weights: list[str], files: list[str]) -> bool:
    """Whether the index is about these: it isn't about another model's file that was named."""
    if weights == [file_names.SINGLE]:
        return False
    return not set(weights) & set(files) or all(map(_SHARD.fullmatch, weights))


def _choose_safetensors(names: list[str], files: list[str]) -> list[str]:
    """One model's files: the named ones, the single file, the shards, or whatever there is."""
    named = sorted(set(names) & set(files))
    if named:
        return named
    if file_names.SINGLE in names:
        return [file_names.SINGLE]
    return sorted(filter(_SHARD.fullmatch, names)) or sorted(names)
