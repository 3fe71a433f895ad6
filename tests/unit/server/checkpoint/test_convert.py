from __future__ import annotations

import hashlib
import json
import os
import shutil

import model_files
import numpy
import pth_file
import pytest
from safetensors.numpy import load_file

from rwkv_server.checkpoint import convert
from rwkv_server.errors import DiskFull, ModelInvalid
from rwkv_server.preflight import location, model


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "official"
    folder.mkdir()
    model_files.write_tokenizer(folder, largest=11)
    return pth_file.write(folder / "rwkv.pth", pth_file.official_tensors())


def converted(source, tmp_path, told=lambda percent: None):
    convert.convert(source, tmp_path / "out", told)
    return tmp_path / "out"


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_every_weight_arrives_and_the_result_can_be_served(source, tmp_path, dtype):
    official = pth_file.official_tensors(dtype)
    pth_file.write(source, official)
    out = converted(source, tmp_path)
    tensors = load_file(out / "model.safetensors")
    assert set(tensors) == set(model_files.tensors())
    for name, tensor in tensors.items():
        was = official[pth_file.official_name(name)]
        low_rank = "_lora." in name and name.endswith("weight")
        assert (tensor == (was.T if low_rank else was).reshape(tensor.shape)).all(), name
        assert tensor.dtype == dtype
    info = model.check_model(location.find_model(out, "Auto"), "Auto", "cpu", lambda percent: None)
    assert info.vocab_size == 12


def test_the_digests_are_what_sha256sum_reads(source, tmp_path):
    out = converted(source, tmp_path)
    lines = (out / "SHA256SUMS").read_text().splitlines()
    for line in lines:
        digest, name = line.split("  ")
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest
    listed = {line.split("  ")[1] for line in lines}
    assert listed == {path.name for path in out.iterdir()} - {"SHA256SUMS"}


def test_a_config_beside_it_wins_over_the_shapes(source, tmp_path):
    mine = model_files.CONFIG | {"norm_eps": 1e-4}
    (source.parent / "config.json").write_text(json.dumps(mine))
    assert json.loads((converted(source, tmp_path) / "config.json").read_text()) == mine


def test_it_says_how_far_it_is(source, tmp_path):
    told = []
    converted(source, tmp_path, told.append)
    assert told == sorted(told)
    assert told[-1] == 100


def test_all_of_it_is_on_the_disk_before_it_appears(source, tmp_path, monkeypatch):
    synced = set()
    real_sync, real_rename = os.fsync, os.rename

    def sync(handle):
        synced.add(os.stat(handle).st_ino)
        real_sync(handle)

    def rename(work, target):
        assert {path.stat().st_ino for path in (*work.iterdir(), work)} <= synced
        real_rename(work, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "rename", rename)
    assert (converted(source, tmp_path) / "SHA256SUMS").is_file()


def test_it_never_overwrites_and_leaves_nothing_behind(source, tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(ModelInvalid, match="exists already; nothing was written"):
        converted(source, tmp_path)
    assert not any((tmp_path / "out").iterdir())


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda t: t.pop("blocks.1.ffn.x_k"), r"model.layers.1.ffn.x_k is missing"),
        (
            lambda t: t.update({"head.weight": t["head.weight"].T.copy()}),
            r"lm_head.weight has shape \[64, 12\], wanted \[12, 64\] "
            r"\(in the checkpoint: head.weight\)",
        ),
        (lambda t: t.update({"extra": t["ln_out.bias"]}), "tensor extra is not part of an RWKV-7"),
        (lambda t: t.clear(), "not an RWKV-7 in official names"),
        (
            lambda t: t.update({"blocks.7.ln1.bias": t["ln_out.bias"]}),
            "model.layers.2.* is missing",
        ),
    ],
)
def test_other_tensors_are_named(source, tmp_path, edit, words):
    tensors = pth_file.official_tensors()
    edit(tensors)
    pth_file.write(source, tensors)
    with pytest.raises(ModelInvalid, match=words):
        converted(source, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["official"]


def test_no_room_is_told_before_a_byte_is_written(source, tmp_path, monkeypatch):
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(DiskFull, match="1000 are free"):
        converted(source, tmp_path)
    assert not (tmp_path / "out").exists()


def time_states(value=1.0):
    shape = (1, 64, 64)
    states = [value * numpy.arange(4096, dtype="float32").reshape(shape) + n for n in range(2)]
    return {f"blocks.{n}.att.time_state": state for n, state in enumerate(states)}


def test_a_state_tuned_start_comes_along_as_it_is(source, tmp_path):
    pth_file.write(source, pth_file.official_tensors() | time_states())
    tensors = load_file(converted(source, tmp_path) / "model.safetensors")
    for n in range(2):
        state = tensors[f"model.layers.{n}.attn.initial_state"]
        assert (state == time_states()[f"blocks.{n}.att.time_state"]).all()


def test_one_beside_the_checkpoint_comes_first(source, tmp_path):
    pth_file.write(source, pth_file.official_tensors() | time_states())
    pth_file.write(source.with_name("initial_state.pth"), time_states(2.0))
    assert location.find_model(source.parent, "Auto").pth == source
    out = converted(source, tmp_path)
    state = load_file(out / "model.safetensors")["model.layers.1.attn.initial_state"]
    assert (state == time_states(2.0)["blocks.1.att.time_state"]).all()
    model.check_model(location.find_model(out, "Auto"), "Auto", "cpu", lambda percent: None)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"blocks.0.att.time_state": numpy.zeros((1, 64, 64), "float32")}, "1.* is missing"),
        (time_states() | {"emb.weight": numpy.zeros((1, 2), "float32")}, "something else"),
        ({name: array[:, :2] for name, array in time_states().items()}, "has shape"),
        ({}, "something else than an initial state"),
    ],
)
def test_what_is_no_initial_state_of_this_model(source, tmp_path, state, words):
    pth_file.write(source.with_name("initial_state.pth"), state)
    with pytest.raises(ModelInvalid, match=words):
        converted(source, tmp_path)
    assert not (tmp_path / "out").exists()


def test_a_world_model_needs_no_tokenizer_beside_it(source, tmp_path):
    (source.parent / "tokenizer.json").unlink()
    assert {path.name for path in converted(source, tmp_path).iterdir()} == {
        "SHA256SUMS", "config.json", "model.safetensors"
    }  # fmt: skip
