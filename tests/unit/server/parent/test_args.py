from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path

import engine_config
import pytest
import yaml

from rwkv_server import settings
from rwkv_server.errors import ConfigInvalid
from rwkv_server.model.config import RWKV7Config
from rwkv_server.parent import args
from rwkv_server.preflight.model import ModelInfo

SERVER = Path(args.__file__).parents[2]
MODEL = ModelInfo(
    path=Path("/models/a"),
    digest="sha256:0",
    format="SafeTensors",
    dtype="float32",
    vocab_size=320,
    state_bytes=200_000,
    parameters=700_000,
)


def build(**fields):
    parsed = settings.parse_settings(yaml.safe_dump(engine_config.changed(**fields)))
    return args.child_args(parsed, MODEL)


@pytest.mark.parametrize(
    ("fields", "argument"),
    [
        ({}, "--model=/models/a"),
        ({"model__servedName": "-odd"}, "--served-model-name=-odd"),
        ({"http__port": 8123}, "--port=8123"),
        ({}, "--host=0.0.0.0"),
        ({}, "--dtype=float32"),
        ({}, "--load-format=safetensors"),
        ({"model__maxModelLen": 77}, "--max-model-len=77"),
        ({"engine__maxNumSeqs": 3}, "--max-num-seqs=3"),
        ({"engine__maxNumBatchedTokens": 99}, "--max-num-batched-tokens=99"),
        ({"engine__tensorParallelSize": 2}, "--tensor-parallel-size=2"),
        ({"engine__maxNumSeqs": 16}, "--kv-cache-memory-bytes=4194304"),
        ({"engine__maxNumSeqs": 16}, "--num-gpu-blocks-override=18"),
        ({}, "--middleware=rwkv_server.web.gate.Gate"),
        ({}, "--no-enable-prefix-caching"),
        ({}, "--enforce-eager"),
        ({"engine__extraArgs": ["--seed=7"]}, "--seed=7"),
    ],
)
def test_each_setting_becomes_its_flag(fields, argument):
    assert argument in build(**fields)


def test_the_command_line_as_a_whole():
    command = build(engine__extraArgs=["--async-scheduling"])
    assert command[:3] == [sys.executable, "-m", "vllm.entrypoints.openai.api_server"]
    assert command[-1] == "--async-scheduling"
    assert not [argument for argument in command if "key" in argument or "trust" in argument]


def test_the_connector_of_states_comes_with_every_engine():
    (flag,) = (a for a in build(http__port=8123) if a.startswith("--kv-transfer-config="))
    told = json.loads(flag.partition("=")[2])
    assert told["kv_role"] == "kv_both" and told["kv_load_failure_policy"] == "fail"
    module = told["kv_connector_module_path"].replace(".", "/")
    assert f"class {told['kv_connector']}(" in (SERVER / f"{module}.py").read_text()
    extra = told["kv_connector_extra_config"]
    assert extra == {
        "slots": "/dev/shm/rwkv-states-8123",
        "socket": "/dev/shm/rwkv-states-8123.socket",
    }


@pytest.mark.parametrize(
    ("chips", "offered"), [([], 1), (["Ascend910B3"], 1), (["Ascend910B3", "Ascend310P3"], 0)]
)
def test_an_engine_that_takes_no_connector_gets_none(chips, offered):
    arguments = build(stack__vendor="ascend", stack__runtime={"chip": chips})
    assert sum(a.startswith("--kv-transfer-config=") for a in arguments) == offered


@pytest.mark.parametrize(("vendor", "eager"), [("cpu", 1), ("nvidia", 0), ("ascend", 1)])
def test_graphs_are_for_nvidia(vendor, eager):
    assert build(stack__vendor=vendor).count("--enforce-eager") == eager


@pytest.mark.parametrize("vendor", ["cpu", "nvidia", "ascend"])
def test_no_request_chooses_who_reads_its_grammar(vendor):
    flag = '--structured-outputs-config={"backend": "xgrammar"}'
    assert flag in build(stack__vendor=vendor)


def test_a_replica_on_ascend_has_one_device():
    told = r"set spec\.hardware\.devicesPerReplica to 1"
    with pytest.raises(ConfigInvalid, match=told) as caught:
        build(stack__vendor="ascend", engine__tensorParallelSize=2)
    assert (caught.value.found, caught.value.wanted) == (2, 1)


def test_who_sizes_the_cache_in_bytes_gets_those_bytes():
    command = build(engine__extraArgs=["--kv-cache-memory-bytes=9000000"])
    assert command[-1] == "--kv-cache-memory-bytes=9000000"
    assert not any("num-gpu-blocks-override" in argument for argument in command)


@pytest.mark.parametrize(
    ("vendor", "degree", "one"), [("cpu", 1, True), ("cpu", 2, False), ("nvidia", 1, False)]
)
def test_one_process_where_one_worker_is_enough(vendor, degree, one):
    command = build(stack__vendor=vendor, engine__tensorParallelSize=degree)
    assert any("UniProcExecutor" in argument for argument in command) is one


def test_the_layers_named_on_the_command_line_exist_and_the_gate_is_the_last():
    from rwkv_server.states.web.layer import StateLayer
    from rwkv_server.web.gate import Gate

    classes = [f"{each.__module__}.{each.__name__}" for each in (StateLayer, Gate)]
    assert list(args.MIDDLEWARE) == classes
    given = [word for word in build() if word.startswith("--middleware")]
    assert given == [f"--middleware={name}" for name in classes]


@pytest.mark.parametrize("vendor", ["cpu", "nvidia", "ascend"])
def test_each_vendor_has_its_logits_processor(vendor):
    name = args.LOGITS_PROCESSORS[vendor]
    assert f"--logits-processors={name}" in build(stack__vendor=vendor)
    module, _, kind = name.partition(":")
    source = (SERVER / module.replace(".", "/")).with_suffix(".py").read_text()
    assert f"class {kind}(" in source


def test_the_model_runner_is_the_one_that_the_processor_fits():
    env = args.child_env(
        {"VLLM_USE_V2_MODEL_RUNNER": "0"}, "secret", threads=2, vendor="nvidia", vocabulary=9
    )
    assert env["VLLM_USE_V2_MODEL_RUNNER"] == "1"


def test_a_budget_below_one_token_for_each_sequence_is_refused():
    with pytest.raises(ConfigInvalid, match="maxNumBatchedTokens is smaller"):
        build(engine__maxNumBatchedTokens=4, engine__maxNumSeqs=5)


def test_the_environment_has_the_key_and_no_open_doors():
    inherited = {"HOME": "/tmp", "VLLM_SERVER_DEV_MODE": "1", "VLLM_API_KEY": "old"}
    env = args.child_env(inherited, "secret", threads=2, vendor="cpu", vocabulary=9)
    assert env["VLLM_API_KEY"] == "secret"
    assert env["RWKV_VOCABULARY"] == "9"
    assert env["VLLM_NO_USAGE_STATS"] == env["HF_HUB_OFFLINE"] == "1"
    assert (env["OMP_NUM_THREADS"], env["VLLM_CPU_OMP_THREADS_BIND"]) == ("2", "nobind")
    assert env["TORCH_COMPILE_DISABLE"] == "1"
    assert int(env["VLLM_XGRAMMAR_CACHE_MB"]) <= 64
    assert env["HOME"] == "/tmp"
    assert "VLLM_SERVER_DEV_MODE" not in env


def test_threads_are_an_affair_of_cpus():
    assert "OMP_NUM_THREADS" not in args.child_env(
        {}, "secret", threads=2, vendor="nvidia", vocabulary=9
    )


@pytest.mark.parametrize(
    ("cores", "parameters", "ranks", "threads"),
    [
        (8, 700_000, 1, 1),
        (8, 191_000_000, 1, 8),
        (1, 191_000_000, 1, 1),
        (8, 191_000_000, 2, 4),
        (1, 191_000_000, 2, 1),
    ],
)
def test_tiny_models_get_one_thread_and_ranks_share_the_cores(cores, parameters, ranks, threads):
    assert args.compute_threads(cores, parameters, ranks) == threads


def test_packed_weights_need_the_stacks_consent_and_name_the_model():
    def packed(scheme, allowed):
        return build(engine__quantization=scheme, stack__supports={"quantization": allowed})

    assert not any("additional-config" in argument for argument in packed("None", ["W8"]))
    with pytest.raises(ConfigInvalid, match="stack cpu doesn't support it") as caught:
        packed("W8", ["None"])
    assert (caught.value.found, caught.value.wanted) == ("W8", "None")
    (argument,) = [a for a in packed("W4", ["None", "W4"]) if "additional-config" in a]
    assert argument == (
        '--additional-config={"rwkv_packed_ffn": {"scheme": "W4", "model": "sha256:0"}}'
    )


def test_a_world_model_gets_its_tokenizer_and_parsers():
    parsed = settings.parse_settings(yaml.safe_dump(engine_config.SAMPLE))
    ours = set(args.child_args(parsed, dataclasses.replace(MODEL, world=True))) - set(build())
    assert ours == {
        "--tokenizer-mode=rwkv",
        "--tool-call-parser=rwkv",
        "--reasoning-parser=rwkv",
        "--enable-auto-tool-choice",
    }


def test_a_wrong_end_is_overridden():
    parsed = settings.parse_settings(yaml.safe_dump(engine_config.SAMPLE))
    model = dataclasses.replace(MODEL, wrong_end=True)
    ours = set(args.child_args(parsed, model)) - set(build())
    assert ours == {'--override-generation-config={"eos_token_id": 0}'}


@pytest.mark.parametrize(
    ("ranks", "told"), [(4, "6 heads evenly"), (3, "1024 feed-forward channels evenly")]
)
def test_devices_that_cannot_share_a_model_evenly_are_refused(ranks, told):
    model = RWKV7Config(320, 384, 3, 64, 1024, 32, 32, 16, 64, 1e-5, False)
    args.check_ranks(2, model)
    with pytest.raises(ConfigInvalid, match=told) as caught:
        args.check_ranks(ranks, model)
    assert caught.value.found == ranks
