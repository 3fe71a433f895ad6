from __future__ import annotations

import pytest

from rwkv_operator import errors
from rwkv_operator.api import parsing


@pytest.mark.parametrize(
    ("text", "seconds"), [("1s", 1), ("30s", 30), ("5m", 300), ("2h", 7200), ("99999s", 99999)]
)
def test_a_duration_is_seconds(text: str, seconds: int) -> None:
    assert parsing.parse_duration("spec.x", text) == seconds


@pytest.mark.parametrize("text", ["", "0s", "30", "1h30m", "-1s", "1.5s", "30s\n", "100000s", "1d"])
def test_another_duration_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidSpec) as refused:
        parsing.parse_duration("spec.x", text)
    assert refused.value.field == "spec.x"
    assert refused.value.found == text


@pytest.mark.parametrize(
    ("text", "amount"),
    [("1", 1), ("1k", 1000), ("1Ki", 1024), ("32Mi", 32 * 2**20), ("10G", 10**10), ("2Ti", 2**41)],
)
def test_a_quantity_is_bytes(text: str, amount: int) -> None:
    assert parsing.parse_quantity("spec.x", text) == amount


@pytest.mark.parametrize("text", ["", "0", "10GB", "1.5Gi", "-1", "1e9", "1K", "1m"])
def test_another_quantity_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidSpec):
        parsing.parse_quantity("spec.x", text)


FIELDS = parsing.Fields.of(
    {"text": "a", "number": 3, "yes": True, "list": [1], "object": {"a": 1}, "null": None}, "spec"
)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: FIELDS.text("number"), "spec.number: found 3, wanted a text"),
        (lambda: FIELDS.text("absent"), "spec.absent: found nothing, wanted a text"),
        (lambda: FIELDS.integer("text", 1, 0, 9), "spec.text: found a, wanted a whole number"),
        (lambda: FIELDS.integer("yes", 1, 0, 9), "spec.yes: found True, wanted a whole number"),
        (lambda: FIELDS.integer("number", 1, 4, 9), "wanted a whole number from 4 to 9"),
        (lambda: FIELDS.choice("text", ("b", "c"), "b"), "spec.text: found a, wanted one of b, c"),
        (lambda: FIELDS.child("text"), "spec.text: found a, wanted an object"),
        (lambda: FIELDS.texts("list"), "spec.list[0]: found 1, wanted a text"),
        (lambda: FIELDS.texts("text"), "spec.text: found a, wanted a list"),
        (lambda: FIELDS.integers("object"), "spec.object: found {'a': 1}, wanted a list"),
        (lambda: FIELDS.raw_list("list"), "spec.list[0]: found 1, wanted an object"),
        (lambda: FIELDS.text_map("object"), "spec.object.a: found 1, wanted a text"),
        (lambda: FIELDS.only_key(("a", "b")), "spec: found nothing, wanted exactly one of a, b"),
        (
            lambda: FIELDS.only_key(("text", "number")),
            "spec: found text and number, wanted exactly one of text, number",
        ),
    ],
)
def test_a_wrong_field_is_named_with_what_was_found_and_wanted(read: object, message: str) -> None:
    assert callable(read)
    with pytest.raises(errors.InvalidSpec) as refused:
        read()
    assert message in str(refused.value)


def test_null_counts_as_absent() -> None:
    assert not FIELDS.has("null")
    assert FIELDS.child("null").values == {}
    assert FIELDS.texts("null") == ()
    assert FIELDS.optional_text("null") is None


def test_raw_values_are_copies() -> None:
    obj = {"affinity": {"a": {"b": 1}}, "tolerations": [{"key": "x"}]}
    fields = parsing.Fields.of(obj, "")
    fields.raw_map("affinity")["a"]["b"] = 2
    assert isinstance(fields.raw_list("tolerations")[0], dict)
    fields.raw_list("tolerations")[0]["key"] = "y"
    assert obj == {"affinity": {"a": {"b": 1}}, "tolerations": [{"key": "x"}]}


def test_raw_values_lose_what_is_empty_but_not_empty_selectors() -> None:
    peer = {
        "namespaceSelector": {},
        "podSelector": {"matchLabels": {}, "matchExpressions": []},
        "ipBlock": {"cidr": "", "except": None, "count": 0},
    }
    (read,) = parsing.Fields.of({"peers": [peer]}, "").raw_list("peers")
    assert read == {"namespaceSelector": {}, "podSelector": {}, "ipBlock": {"count": 0}}
