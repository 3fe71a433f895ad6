from __future__ import annotations

import json

import pytest
import yaml

from rwkv_operator.cluster import client


@pytest.mark.parametrize(
    "text",
    ["", "é 你好", "\U0001f600", "a\x00\x1f\x7f\x85\x9f", "\u2028\u2029\ufeff\uffff", '"\\\n'],
)
def test_an_applied_object_is_the_same_read_as_yaml_and_as_json(text: str) -> None:
    sent = client.to_yaml({"metadata": {"annotations": {"note": text}}})
    assert yaml.safe_load(sent)["metadata"]["annotations"]["note"] == text
    assert json.loads(sent)["metadata"]["annotations"]["note"] == text


def test_an_emoji_is_sent_as_it_is() -> None:
    assert client.to_yaml("\U0001f600") == '"\U0001f600"'
