from __future__ import annotations

import hashlib
import json

import model_files
import pytest
from safetensors.numpy import save_file

from rwkv_server.errors import ModelInvalid, ModelNotFound
from rwkv_server.preflight import location, model


def check(path, vendor="cpu", dtype="Auto"):
    found = location.find_model(path, "Auto")
    return model.check_model(found, dtype, vendor, lambda percent: None)


@pytest.fixture
def path(tmp_path):
    return model_files.write_model(tmp_path / "model")


def test_a_good_model_is_described(path):
    info = check(path)
    weights = (path / "model.safetensors").read_bytes()
    assert info.digest == "sha256:" + hashlib.sha256(weights).hexdigest()
    assert (info.dtype, info.format, info.vocab_size) == ("float32", "SafeTensors", 12)
    assert info.state_bytes == 2 * (64 * 64 + 2 * 64) * 4
    assert info.parameters == sum(tensor.size for tensor in model_files.tensors().values())


def test_shards_are_one_model(path):
    model_files.write_shards(path)
    shards = b"".join(file.read_bytes() for file in sorted(path.glob("*.safetensors")))
    assert check(path).digest == "sha256:" + hashlib.sha256(shards).hexdigest()


def test_hashing_tells_how_far_it_is(path):
    told = []
    model.check_model(location.find_model(path, "Auto"), "Auto", "cpu", told.append)
    assert told[-1] == 100


@pytest.mark.parametrize(
    ("wanted", "stored", "vendor", "used"),
    [
        ("Auto", "float32", "cpu", "float32"),
        ("Auto", "float16", "cpu", "float32"),
        ("Auto", "bfloat16", "cpu", "bfloat16"),
        ("Auto", "float16", "nvidia", "float16"),
        ("BFloat16", "float32", "cpu", "bfloat16"),
        ("Float16", "float32", "cpu", "float16"),
    ],
)
def test_dtype(wanted, stored, vendor, used):
    assert model.resolve_dtype(wanted, stored, vendor) == used


def test_nothing_there(tmp_path):
    with pytest.raises(ModelNotFound, match=r"there is no .*/gone"):
        check(tmp_path / "gone")


def without(name):
    return lambda path: (path / name).unlink()


def config(**fields):
    def change(path):
        (path / "config.json").write_text(json.dumps(model_files.CONFIG | fields))

    return change


def tensor(name, change):
    def edit(path):
        tensors = model_files.tensors()
        changed = change(tensors.pop(name))
        if changed is not None:
            tensors[name] = changed
        save_file(tensors, path / "model.safetensors")

    return edit


def cut(path):
    file = path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


def no_shard(path):
    model_files.write_shards(path)
    (path / "model-00002-of-00002.safetensors").unlink()


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (without("config.json"), "has no config.json"),
        (without("model.safetensors"), "holds no weights"),
        (without("tokenizer.json"), "has no tokenizer.json"),
        (lambda path: (path / "config.json").write_text("{"), "config.json is not JSON"),
        (lambda path: (path / "config.json").write_text("[]"), "config.json is not a JSON object"),
        (lambda path: (path / "config.json").write_text("[" * 99999), "config.json is not JSON"),
        (config(architectures=["LlamaForCausalLM"]), "architectures doesn't hold RWKV7"),
        (config(architectures=None), "architectures doesn't hold RWKV7"),
        (config(model_type="llama"), "model_type is 'llama'"),
        (config(hidden_size=100), "hidden_size is 100"),
        (config(num_hidden_layers=10**9), "num_hidden_layers is 1000000000"),
        (config(num_hidden_layers=1), "model.layers.1.*not part of an RWKV-7"),
        (config(vocab_size=13), r"embeddings.weight has shape \[12, 64\], wanted \[13, 64\]"),
        (tensor("model.norm.bias", lambda t: None), "tensor model.norm.bias is missing"),
        (
            tensor("lm_head.weight", lambda t: t.reshape(64, 12)),
            r"model.safetensors: tensor lm_head.weight has shape \[64, 12\], wanted \[12, 64\]",
        ),
        (
            tensor("lm_head.weight", lambda t: t.astype("int8")),
            "tensor lm_head.weight is stored as I8",
        ),
        (cut, "cut short"),
        (no_shard, "lacks the weight file model-00002-of-00002.safetensors"),
        (lambda path: model_files.write_tokenizer(path, 12), "token id 12 is outside"),
    ],
)
def test_broken_models_are_refused_with_file_and_tensor(edit, words, path):
    edit(path)
    with pytest.raises(ModelInvalid, match=words) as caught:
        check(path)
    assert caught.value.exit_code == 65


def test_a_wrong_shape_is_told_as_found_and_wanted(path):
    tensor("lm_head.weight", lambda t: t.reshape(64, 12))(path)
    with pytest.raises(ModelInvalid) as caught:
        check(path)
    assert (caught.value.found, caught.value.wanted) == ([64, 12], [12, 64])


@pytest.mark.parametrize(
    ("ends", "size", "wrong"),
    [(2, 65536, True), (0, 65536, False), ([0, 261], 65536, False), (2, 320, False)],
)
def test_a_generation_config_may_name_another_end_than_worlds(tmp_path, ends, size, wrong):
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    assert model.names_wrong_end(tmp_path, size) is wrong


def test_without_a_generation_config_there_is_no_wrong_end(tmp_path):
    assert model.names_wrong_end(tmp_path, 65536) is False
