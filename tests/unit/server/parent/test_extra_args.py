from __future__ import annotations

import pytest

from rwkv_server.errors import ConfigInvalid
from rwkv_server.parent.extra_args import check_extra_args


@pytest.mark.parametrize(
    "args", [[], ["--seed=1"], ["--seed=-1"], ["--enforce-eager", "--max-logprobs=5"]]
)
def test_listed_flags_pass(args):
    assert check_extra_args(args) == args


@pytest.mark.parametrize(
    "argument",
    [
        "--trust-remote-code",
        "--trust_remote_code",
        "--max_logprobs=5",
        "--api-key=x",
        "--middleware=os.system",
        "--see=1",
        "--kv-transfer-config.kv_connector=x",
        "-O3",
        "stray",
        "--seed",
        "--seed=",
        "--enforce-eager=false",
        "",
    ],
)
def test_all_others_are_refused_by_name(argument):
    with pytest.raises(ConfigInvalid) as caught:
        check_extra_args(["--seed=1", argument])
    assert caught.value.found == argument
    assert f"engine.extraArgs: {argument!r} can't be used" in caught.value.message
