from __future__ import annotations

import os

import model_files
import numpy
import pth_file
import pytest

from rwkv_server.checkpoint import convert
from rwkv_server.errors import ModelInvalid
from rwkv_server.preflight import conversion, location, model


@pytest.fixture
def place(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    model_files.write_tokenizer(folder, largest=11)
    pth_file.write(folder / "rwkv.pth", pth_file.official_tensors())
    return location.find_model(folder, "Auto")


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    folder = tmp_path / "tmp"
    monkeypatch.setattr(conversion.tempfile, "gettempdir", lambda: str(folder))
    return folder


def run(place):
    return conversion.converted_folder(place, lambda percent: None)


def test_safetensors_stay_where_they_are(tmp_path):
    found = location.find_model(model_files.write_model(tmp_path / "m"), "Auto")
    assert run(found) == tmp_path / "m"


def test_a_checkpoint_is_converted_beside_itself_once(place, temporary, monkeypatch):
    folder = run(place)
    assert folder.parent == place.folder / ".rwkv-converted"
    info = model.check_model(location.find_model(folder, "Auto"), "Auto", "cpu", lambda p: None)
    assert info.vocab_size == 12
    monkeypatch.setattr(convert, "convert", lambda *arguments: pytest.fail("converted again"))
    assert run(place) == folder
    assert location.find_model(place.folder, "Auto") == place
    assert not temporary.exists()


def test_a_volume_that_cant_be_written_is_left_alone(place, temporary, monkeypatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert run(place).parent == temporary / "rwkv-converted"
    assert not (place.folder / ".rwkv-converted").exists()


@pytest.mark.parametrize("name", ["rwkv.pth", "tokenizer.json"])
def test_a_changed_file_is_converted_anew(place, name):
    before = run(place)
    os.utime(place.folder / name, (1, 1))
    assert run(place) != before


def test_a_state_tuned_start_that_came_later_is_taken_in(place):
    before = run(place)
    shape = (2, 1, 64, 64)
    states = {f"blocks.{n}.att.time_state": s for n, s in enumerate(numpy.ones(shape, "float32"))}
    pth_file.write(place.folder / "initial_state.pth", states)
    assert run(place) != before


def test_another_pod_was_faster(place, monkeypatch):
    def lose(source, target, on_percent):
        real(source, target, on_percent)
        raise ModelInvalid("exists already")

    real = convert.convert
    monkeypatch.setattr(convert, "convert", lose)
    assert (run(place) / "SHA256SUMS").exists()


def test_a_bad_checkpoint_is_told(place):
    place.pth.write_bytes(b"x")
    with pytest.raises(ModelInvalid, match="is not a"):
        run(place)


def test_earlier_conversions_are_dropped_and_the_own_one_stays(place):
    mine = run(place)
    for name in (f".{mine.name}.0123456789ab", "an-older-one"):
        (mine.parent / name).mkdir()
        (mine.parent / name / "model.safetensors").touch()
    conversion.remove_others(place)
    assert list(mine.parent.iterdir()) == [mine]
    conversion.remove_others(location.Location(place.folder, "SafeTensors"))
    assert not list(mine.parent.iterdir())


def test_without_a_conversion_there_is_nothing_to_drop(place):
    conversion.remove_others(place)
    assert not (place.folder / ".rwkv-converted").exists()
