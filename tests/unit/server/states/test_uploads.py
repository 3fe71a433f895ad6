"""Uploaded .pth files: what becomes a snapshot, and what is refused with nothing run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import model_files
import numpy
import pth_file
import pytest

from rwkv_server.states import uploads
from rwkv_server.states.errors import StateCorrupt, StateError, StateIncompatible
from rwkv_server.states.layout import StateLayout

LAYOUT = StateLayout.of(model_files.config(), "float32")
HEADS = (1, 64, 64)


def states(dtype="float32", layers=2, shape=HEADS):
    random = numpy.random.default_rng(3)
    values = [random.standard_normal(shape).astype("float32") for _ in range(layers)]
    return {f"blocks.{n}.att.time_state": value.astype(dtype) for n, value in enumerate(values)}


def write(path: Path, entries) -> bytes:
    return pth_file.write(path / "state.pth", entries).read_bytes()


async def read(content: bytes) -> bytearray:
    slot = bytearray(b"\xff" * LAYOUT.nbytes)
    await uploads.read_initial_state(content, LAYOUT, memoryview(slot))
    return slot


def tensor(slot: bytearray, name: str) -> numpy.ndarray:
    found = next(spec for spec in LAYOUT.tensors if spec.name == name)
    part = slot[found.offset : found.offset + found.nbytes]
    return numpy.frombuffer(part, "<f4").reshape(found.shape)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
async def test_each_layer_starts_from_its_own_state(tmp_path, dtype):
    wanted = states(dtype)
    slot = await read(write(tmp_path, wanted))
    for layer in range(2):
        found = tensor(slot, f"layers.{layer}.wkv")
        assert (found == wanted[f"blocks.{layer}.att.time_state"].astype("float32")).all()
        assert not tensor(slot, f"layers.{layer}.att_shift").any()
        assert not tensor(slot, f"layers.{layer}.ffn_shift").any()


async def test_bfloat16_keeps_its_bits(tmp_path):
    bits = {name: (value.view("u4") >> 16).astype("u2") for name, value in states().items()}
    slot = await read(write(tmp_path, bits))
    wanted = (bits["blocks.1.att.time_state"].astype("u4") << 16).view("f4")
    assert (tensor(slot, "layers.1.wkv") == wanted).all()


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (states(layers=1), "blocks.1.att.time_state' is missing"),
        (states(layers=3), "blocks.2.att.time_state' is none of them"),
        (states(shape=(2, 64, 64)), r"found \[2, 64, 64\], wanted \[1, 64, 64\]"),
        ({"emb.weight": numpy.zeros((4, 4), "f4")}, "is missing"),
    ],
)
async def test_states_of_another_model_are_named(tmp_path, entries, words):
    with pytest.raises(StateIncompatible, match=words):
        await read(write(tmp_path, entries))


async def test_a_pickle_with_code_is_refused_and_not_run(tmp_path):
    mark = tmp_path / "ran"
    evil = {**states(), "x": pth_file.call("posix", "system", f"touch {mark}")}
    with pytest.raises(StateCorrupt, match=r"calls posix\.system"):
        await read(write(tmp_path, evil))
    assert not mark.exists()


async def test_damaged_files_are_refused(tmp_path):
    whole = write(tmp_path, states())
    for content in (b"", b"PK", whole[:-1], whole[: len(whole) // 2], bytes(5000)):
        with pytest.raises(StateCorrupt):
            await read(content)


async def test_a_flipped_bit_is_found_by_the_archives_own_sum(tmp_path):
    whole = bytearray(write(tmp_path, states()))
    place = whole.index(states()["blocks.1.att.time_state"].tobytes()[:64])
    whole[place + 9] ^= 0x10
    with pytest.raises(StateCorrupt, match="damaged"):
        await read(bytes(whole))


async def test_sixty_four_bit_floats_are_named(tmp_path):
    with pytest.raises(StateError, match="F64"):
        await read(write(tmp_path, states("float64")))


def test_the_process_can_open_nothing_after_it_gave_up_its_rights():
    code = (
        "import runpy, socket, sys; sys.argv=['x'];"
        f"module = runpy.run_path({str(uploads.SCRIPT)!r});"
        "module['unpickle'].give_up_rights();"
        "failed = 0\n"
        "for act in (lambda: open('/etc/passwd'), lambda: socket.socket()):\n"
        "    try: act()\n"
        "    except OSError: failed += 1\n"
        "print(failed)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-B", "-c", code], env={}, capture_output=True, text=True, check=True
    )
    assert done.stdout == "2\n"
