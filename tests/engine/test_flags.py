"""Every flag that the parent gives its child is one that this vLLM has."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import engine_config
import pytest
import yaml

from rwkv_server import settings
from rwkv_server.parent import args, extra_args
from rwkv_server.preflight.model import ModelInfo

MODEL = ModelInfo(
    path=Path("/models/a"),
    digest="sha256:0",
    format="SafeTensors",
    dtype="float32",
    vocab_size=320,
    state_bytes=200_000,
    parameters=700_000,
)


@pytest.fixture(scope="module")
def parser() -> Any:
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    try:
        cli = importlib.import_module("vllm.entrypoints.launchers.cli_args")
    except ModuleNotFoundError:  # 0.18
        cli = importlib.import_module("vllm.entrypoints.openai.cli_args")
    return cli.make_arg_parser(FlexibleArgumentParser(exit_on_error=False))


@pytest.mark.parametrize("vendor", ["cpu", "nvidia", "ascend"])
def test_the_whole_command_line_is_understood(parser: Any, vendor: str) -> None:
    parsed = settings.parse_settings(yaml.safe_dump(engine_config.changed(stack__vendor=vendor)))
    _python, _m, _module, *flags = args.child_args(parsed, MODEL)
    found, unknown = parser.parse_known_args(flags)
    assert unknown == []
    assert found.num_gpu_blocks_override == parsed.engine.max_num_seqs + args.SPARE_SLOTS
    assert found.enforce_eager == (vendor != "nvidia")


def test_so_is_every_flag_that_a_user_may_add(parser: Any) -> None:
    known = {name for action in parser._actions for name in action.option_strings}
    assert extra_args.SWITCHES | extra_args.VALUED <= known
