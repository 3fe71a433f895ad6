import pytest

from rwkv_operator.api.version import parse_version

ASCENDING = ["7", "7.5", "10.0", "25.0.rc1", "25.0.RC2", "25.0", "25.0.1", "25.2.0", "580.65.06"]


def test_versions_ascend() -> None:
    keys = [parse_version(text) for text in ASCENDING]
    assert None not in keys
    assert keys == sorted(keys)  # type: ignore[type-var]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    ("one", "other"), [("25", "25.0.0"), ("v7.5", "7.5"), ("580-65", "580.65")]
)
def test_two_ways_to_write_one_version(one: str, other: str) -> None:
    assert parse_version(one) == parse_version(other)


@pytest.mark.parametrize("text", ["", "newest", "7.x", "1..2", "7.5+local", "1.2.3.4.5.6.7.8.9"])
def test_what_is_no_such_version(text: str) -> None:
    assert parse_version(text) is None
