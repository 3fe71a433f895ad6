"""A refusal of vLLM 0.18 repeats the request that it saw; its client reads what was wrong alone."""

from __future__ import annotations

import json

import pytest

from rwkv_server.states.web.refused import without_transfer

SAW = "'input': {'kv_transfer_params': {'rwkv_transfer': '{}', 'rwkv_signature': '69'}}"


def refusal(message):
    error = {"message": message, "type": "Bad Request", "param": "n", "code": 400}
    return json.dumps({"error": error}).encode()


@pytest.mark.parametrize(
    ("message", "wanted"),
    [
        (f"[{{'msg': 'Value error, no', {SAW}}}]", "Value error, no"),
        (
            f"/a/file.py\n [{{'msg': \"can't be\", {SAW}}}, {{'msg': 'two', {SAW}}}]",
            "can't be; two",
        ),
        (f"something else with {SAW}", "vLLM refuses this request"),
    ],
)
def test_only_what_was_wrong_is_told(message, wanted):
    error = json.loads(without_transfer(refusal(message)))["error"]
    assert error == {"message": wanted, "type": "Bad Request", "param": "n", "code": 400}


@pytest.mark.parametrize(
    "body", [b"rwkv_signature", b'["rwkv_transfer"]', b'{"error": "rwkv_transfer"}']
)
def test_what_is_no_refusal_is_not_shown(body):
    assert json.loads(without_transfer(body))["error"]["message"] == "vLLM refuses this request"


def test_other_refusals_stay_as_they_are():
    body = refusal("[{'msg': 'no', 'input': 5}]")
    assert without_transfer(body) is body
