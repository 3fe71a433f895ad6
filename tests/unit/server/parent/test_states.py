from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import engine_config
import pytest
import yaml

from rwkv_server import settings
from rwkv_server.parent import states
from rwkv_server.preflight.model import ModelInfo
from rwkv_server.states import environment

TOKENIZER = b'{"model": {}}'


@pytest.fixture
def model(tmp_path: Path) -> ModelInfo:
    (tmp_path / "tokenizer.json").write_bytes(TOKENIZER)
    return ModelInfo(tmp_path, "sha256:0", "SafeTensors", "float32", 320, 200_000, 700_000)


def parse(**fields: object) -> settings.Settings:
    return settings.parse_settings(yaml.safe_dump(engine_config.changed(**fields)))


def test_the_child_reads_what_the_parent_writes(model: ModelInfo) -> None:
    told = states.build_environment(parse(http__port=8123), model, "chat-engine-12")
    variables = states.child_variables(told)
    assert environment.read_environment(variables) == told
    assert len(environment.read_key(variables)) == 32
    assert variables.keys() == {"RWKV_STATES", "RWKV_STATE_KEY"}
    assert told.shm != states.build_environment(parse(http__port=8124), model, "a").shm


def test_each_start_has_a_key_of_its_own(model: ModelInfo) -> None:
    told = states.build_environment(parse(), model, "chat-engine-0")
    keys = [environment.read_key(states.child_variables(told)) for _ in range(2)]
    assert keys[0] != keys[1]


@pytest.mark.parametrize(
    ("hostname", "ordinal"),
    [("chat-engine-12", 12), ("a-0", 0), ("laptop", 0), ("x-engine-123456", 0), ("", 0)],
)
def test_the_ordinal_is_the_pod_s(hostname: str, ordinal: int) -> None:
    assert states.parse_ordinal(hostname) == ordinal


def test_whose_states_these_are(model: ModelInfo) -> None:
    plain = states.build_environment(parse(), model, "a-0").fingerprint
    assert plain.tokenizer == f"sha256:{hashlib.sha256(TOKENIZER).hexdigest()}"
    assert (plain.model, plain.dtype, plain.adapters) == ("sha256:0", "float32", "")
    packed = states.build_environment(parse(engine__quantization="Int8"), model, "a-0").fingerprint
    assert packed != plain
    world = dataclasses.replace(model, world=True, path=Path("/nowhere"))
    assert states.build_environment(parse(), world, "a-0").fingerprint.tokenizer == "rwkv-65529"


def test_the_tokenizer_of_another_model_is_another(model: ModelInfo) -> None:
    before = states.digest_tokenizer(model)
    (model.path / "tokenizer.json").write_bytes(TOKENIZER + b" ")
    assert states.digest_tokenizer(model) != before


def test_nothing_is_left_in_shared_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "SHARED_MEMORY", tmp_path)
    states.remove_files(8000)
    for path in (states.slots_file(8000), states.socket_file(8000), states.slots_file(8001)):
        path.touch()
    states.remove_files(8000)
    assert list(tmp_path.iterdir()) == [states.slots_file(8001)]
