from __future__ import annotations

import os
import pickle
import zipfile

import numpy
import pth_file
import pytest

from rwkv_server.checkpoint import archive, sandbox, unpickle
from rwkv_server.errors import ModelInvalid


def opened(path):
    with archive.Archive(path) as found:
        return {name: found.read(tensor) for name, tensor in found.tensors.items()}


@pytest.mark.parametrize(("dtype", "stored"), [("float32", "F32"), ("float16", "F16")])
def test_elements_arrive_bit_for_bit(tmp_path, dtype, stored):
    value = numpy.arange(24, dtype=dtype).reshape(2, 3, 4) / 7
    path = pth_file.write(tmp_path / "m.pth", {"a": value, "b": value[0, 0]})
    with archive.Archive(path) as found:
        assert found.tensors["a"].dtype == stored
        assert found.read(found.tensors["a"]).tobytes() == value.tobytes()
        assert found.read(found.tensors["b"]).tobytes() == value[0, 0].tobytes()


def test_bfloat16_needs_no_such_type(tmp_path):
    value = numpy.arange(5, dtype="uint16")
    with archive.Archive(pth_file.write(tmp_path / "m.pth", {"a": value})) as found:
        assert found.tensors["a"].dtype == "BF16"
        assert found.read(found.tensors["a"]).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("module", "name"),
    [("os", "system"), ("posix", "system"), ("builtins", "eval"), ("builtins", "getattr"),
     ("torch.serialization", "load"), ("torch.hub", "load"), ("numpy", "array")],
)  # fmt: skip
def test_a_pickle_that_calls_is_refused_and_nothing_happens(tmp_path, module, name):
    trap = tmp_path / "trap"
    # `c`: a global by name; `(`…`t`: its arguments; `R`: call it.
    evil = f"c{module}\n{name}\n(Vtouch {trap}\ntR.".encode()
    path = pth_file.write_raw(tmp_path / "m.pth", evil)
    with pytest.raises(ModelInvalid) as caught:
        opened(path)
    assert f"its pickle calls {module}.{name}" in caught.value.message
    assert "Nothing of it was run" in caught.value.message
    assert not trap.exists()


@pytest.mark.parametrize(
    ("pickled", "words"),
    [
        (b"", "it is broken"),
        (pickle.dumps([1, 2]), "no table of tensors"),
        (pickle.dumps({"a": 1}), "entry a is no tensor"),
        (pickle.dumps({1: 1}), "entry 1 is no tensor"),
        (b"\x80\x02\x8e\xff\xff\xff\xff\xff\xff\x00\x00", "is broken|memory"),
        (b"\x80\x02Nr\xff\xff\xff\xff.", "memory|broken|ended with"),
        (b"(" * 1_000_000, "is broken|memory"),
        (b"\x80\x02Vx\nQ.", "is broken|no storage"),
    ],
)
def test_broken_pickles(tmp_path, pickled, words):
    with pytest.raises(ModelInvalid, match=words):
        opened(pth_file.write_raw(tmp_path / "m.pth", pickled))


def test_an_endless_pickle_is_stopped(tmp_path, monkeypatch):
    monkeypatch.setattr(sandbox, "SECONDS", 0.01)
    with pytest.raises(ModelInvalid, match="took more than"):
        opened(pth_file.write_raw(tmp_path / "m.pth", pickle.dumps({})))


def test_the_parser_has_no_environment_and_can_open_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("RWKV_MODEL_TOKEN", "secret")
    script = tmp_path / "probe.py"
    script.write_text(
        f"import sys, os, json, socket\nsys.path.insert(0, {str(sandbox.SCRIPT.parent)!r})\n"
        "import unpickle\nsys.stdin.buffer.read()\nunpickle.give_up_rights()\nfailed = []\n"
        "for number, act in enumerate([lambda: open('/etc/hostname'), lambda: socket.socket(),\n"
        "    lambda: os.pipe(), lambda: bytearray(unpickle.MEMORY)]):\n"
        "    try:\n        act()\n"
        "    except (OSError, MemoryError):\n        failed.append(number)\n"
        "print(json.dumps({'tensors': [failed, list(os.environ)]}))\n"
    )
    monkeypatch.setattr(sandbox, "SCRIPT", script)
    failed, environment = sandbox.describe_pickle(b"", tmp_path)
    assert failed == [0, 1, 2, 3]
    assert "RWKV_MODEL_TOKEN" not in environment


def rebuilt(*arguments):
    return pth_file.call("torch._utils", "_rebuild_tensor_v2", *arguments)


@pytest.mark.parametrize(
    ("offset", "shape", "strides", "words"),
    [
        (0, (4,), (1,), None),
        (1, (4,), (1,), "reaches beyond"),
        (0, (2, 4), (4, 1), "reaches beyond"),
        (0, (10**9,), (0,), "reaches beyond"),
        (-1, (4,), (1,), "odd shape"),
        (0, (4,), (-1,), "odd shape"),
        (0, (4, 1), (1,), "not stored as torch"),
        (0, (0,), (1,), "reaches beyond"),
        (0, ("4",), (1,), "odd shape"),
        (0, (1 << 60,), (0,), "odd shape"),
        (0, (1,) * 9, (1,) * 9, "odd shape"),
    ],
)
def test_numbers_are_compared_with_the_bytes(tmp_path, offset, shape, strides, words):
    storage = pth_file.storage("0", numpy.zeros(4, "float32"))
    path = pth_file.write(tmp_path / "m.pth", {"a": rebuilt(storage, offset, shape, strides)})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("model/data/0", bytes(16))
    if words is None:
        assert opened(path)["a"].tolist() == [0] * 4
    else:
        with pytest.raises(ModelInvalid, match=words):
            opened(path)


def test_a_missing_storage_a_wide_type_and_damage(tmp_path):
    storage = pth_file.storage("9", numpy.zeros(4, "float32"))
    path = pth_file.write(tmp_path / "a.pth", {"a": rebuilt(storage, 0, (4,), (1,))})
    with pytest.raises(ModelInvalid, match="bytes of tensor a are missing"):
        opened(path)
    wide = pth_file.write(tmp_path / "b.pth", {"a": numpy.zeros(4, "float64")})
    with pytest.raises(ModelInvalid, match="tensor a is stored as F64"):
        opened(wide)
    hurt = pth_file.write(tmp_path / "c.pth", {"a": numpy.full(99, 7, "uint16")})
    hurt.write_bytes(hurt.read_bytes().replace(b"\7\0\7\0\7\0", b"\7\0\7\0\6\0", 1))
    with pytest.raises(ModelInvalid, match="tensor a is damaged"):
        opened(hurt)


def patch_sizes(path, entry, compressed, whole):
    """Write other sizes into the zip directory's record of `entry`."""
    content = bytearray(path.read_bytes())
    # The last mention of the name is the directory's; its sizes lie 26 bytes before.
    at = content.rindex(entry) - 26
    content[at : at + 8] = compressed.to_bytes(4, "little") + whole.to_bytes(4, "little")
    path.write_bytes(content)


@pytest.mark.parametrize("compressed", [4, 1 << 20])
def test_a_directory_that_promises_more_bytes_than_there_are(tmp_path, compressed):
    storage = pth_file.storage("0", numpy.zeros(1000, "float32"))
    path = pth_file.write(tmp_path / "m.pth", {"a": rebuilt(storage, 0, (1000,), (1,))})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("model/data/0", b"ABCD")
    patch_sizes(path, b"model/data/0", compressed, 1 << 20)
    with pytest.raises(ModelInvalid, match=r"tensor a is (not stored|damaged)"):
        opened(path)


def test_bytes_that_are_no_whole_elements(tmp_path):
    storage = pth_file.storage("0", numpy.zeros(1, "float32"))
    path = pth_file.write(tmp_path / "m.pth", {"a": rebuilt(storage, 0, (1,), (1,))})
    with zipfile.ZipFile(path, "a") as file:
        file.writestr("model/data/0", bytes(7))
    with pytest.raises(ModelInvalid, match="not stored as torch does"):
        opened(path)


@pytest.mark.parametrize(
    "entry",
    [
        ["a", "0", ["F32"], 0, [1], [1]],
        ["a", "0", "F32", 0, 1, [1]],
        ["a", "0", "F32", 0, [1], None],
        ["a", "0", "F32", 0, [1]],
        ["\ud800", "0", "F32", 0, [1], [1]],
        ["a", 0, "F32", 0, [1], [1]],
        {},
    ],
)
def test_whatever_the_parser_says_is_only_believed_in_form(tmp_path, monkeypatch, entry):
    monkeypatch.setattr(sandbox, "describe_pickle", lambda content, source: [entry])
    with pytest.raises(ModelInvalid):
        opened(pth_file.write(tmp_path / "m.pth", {"a": numpy.zeros(1, "float32")}))


def test_a_table_in_a_form_that_the_pickle_chose(tmp_path):
    # `b` sets attributes of the tensor before it, whatever they are.
    storage = pth_file.storage("0", numpy.zeros(1, "float32"))
    path = pth_file.write(tmp_path / "m.pth", {"a": rebuilt(storage, 0, (1,), (1,))})
    with zipfile.ZipFile(path) as file:
        pickled = file.read("model/data.pkl")
    for value in (b"K\x01", b"N", b"]"):
        changed = pickled.replace(b"s.", b"}X\x05\x00\x00\x00shape" + value + b"sbs.")
        assert changed != pickled
        with pytest.raises(ModelInvalid):
            opened(pth_file.write_raw(tmp_path / "n.pth", changed))


def test_what_is_no_archive(tmp_path):
    file = tmp_path / "m.pth"
    file.write_bytes(b"not a zip")
    with pytest.raises(ModelInvalid, match="cut short, or it is in the format"):
        archive.Archive(file)
    whole = pth_file.write(tmp_path / "w.pth", {"a": numpy.zeros(999, "float32")}).read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ModelInvalid, match="cut short"):
        archive.Archive(file)
    with zipfile.ZipFile(file, "w") as empty:
        empty.writestr("x", b"")
    with pytest.raises(ModelInvalid, match=r"no data.pkl"):
        archive.Archive(file)
    with pytest.raises(ModelInvalid, match="can't be read: No such file"):
        archive.Archive(tmp_path / "gone.pth")


def test_the_parser_knows_weights_only():
    assert {module for module, _ in unpickle.NAMES} == {"collections", "torch", "torch._utils"}
    assert os.path.isabs(sandbox.SCRIPT)
