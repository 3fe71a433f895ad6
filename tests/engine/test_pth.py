"""Official checkpoints as torch itself writes them: read without torch, converted, served."""

from __future__ import annotations

import shutil

import fla_to_pth
import numpy
import openai
import pytest
import torch
from safetensors.torch import load_file
from server_process import KEY

from rwkv_server.checkpoint import convert
from rwkv_server.checkpoint.archive import Archive
from rwkv_server.errors import ModelInvalid

CHAT = [{"role": "user", "content": "My name is Ada."}]
UNSIGNED = {torch.float32: torch.int32, torch.float16: torch.int16, torch.bfloat16: torch.int16}


def saved(path, tensors, **options):
    torch.save(tensors, path, **options)
    return path


@pytest.mark.parametrize("dtype", UNSIGNED)
def test_every_view_is_read_as_torch_reads_it(tmp_path, dtype):
    whole = torch.randn(6, 8).to(dtype)
    tensors = {
        "whole": whole,
        "transposed": whole.T,
        "row": whole[2],
        "column": whole[:, 3],
        "block": whole[1:3, 2:5],
        "deep": torch.randn(1, 1, 5).to(dtype),
        "one": torch.randn(()).to(dtype),
        "parameter": torch.nn.Parameter(torch.randn(3).to(dtype)),
    }
    path = saved(tmp_path / "m.pth", tensors)
    wanted = torch.load(path, weights_only=True)
    with Archive(path) as archive:
        assert set(archive.tensors) == set(tensors)
        for name, tensor in archive.tensors.items():
            bits = torch.from_numpy(numpy.array(archive.read(tensor)).astype("int64"))
            width = 8 * wanted[name].element_size()
            found = wanted[name].detach().contiguous().view(UNSIGNED[dtype]).long() % 2**width
            assert torch.equal(bits.reshape(found.shape), found), name


def test_a_state_dict_of_a_module(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4))
    with Archive(saved(tmp_path / "m.pth", module.state_dict())) as archive:
        assert archive.tensors["0.weight"].shape == (4, 3)


def test_a_module_itself_is_refused(tmp_path):
    with pytest.raises(ModelInvalid, match=r"its pickle calls torch\.nn\.modules"):
        Archive(saved(tmp_path / "m.pth", torch.nn.Linear(3, 4)))


def test_the_format_of_old_is_told(tmp_path):
    path = tmp_path / "m.pth"
    saved(path, {"a": torch.zeros(3)}, _use_new_zipfile_serialization=False)
    with pytest.raises(ModelInvalid, match=r"save it again with torch\.save"):
        Archive(path)


@pytest.fixture(scope="module")
def official(tiny_model, tmp_path_factory):
    """The bundled model as an official checkpoint, its tokenizer beside it, without a config."""
    folder = tmp_path_factory.mktemp("official")
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        shutil.copy(tiny_model / name, folder)
    fla_to_pth.write_pth(tiny_model, folder / "tiny-recall.pth")
    return folder


def test_there_and_back_every_weight_is_the_same(tiny_model, official, tmp_path):
    convert.convert(official / "tiny-recall.pth", tmp_path / "out", lambda percent: None)
    before = load_file(tiny_model / "model.safetensors")
    after = load_file(tmp_path / "out" / "model.safetensors")
    assert set(before) == set(after)
    for name, tensor in before.items():
        assert torch.equal(tensor, after[name]), name


def answer(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=0) as client:
        options = {"model": "chat", "temperature": 0, "max_tokens": 24}
        return client.chat.completions.create(messages=CHAT, **options).choices[0].message.content


def test_a_checkpoint_is_served_like_the_model_it_was_made_from(
    nursery, tiny_model, official, tmp_path
):
    answers = []
    for number, model in enumerate((official / "tiny-recall.pth", tiny_model)):
        server = nursery.pod(tmp_path / str(number), model, engine__maxNumSeqs=2)
        try:
            server.wait_until_ready(400)
            answers.append(answer(server))
            formats = server.ops("/report").json()["model"]["format"]
            assert formats == ("PTH", "SafeTensors")[number]
        finally:
            server.stop()
    assert answers[0] == answers[1] != ""
    assert "converting" in (tmp_path / "0" / "log").read_text()
