from __future__ import annotations

import pytest

from rwkv_server.errors import RuntimeMismatch
from rwkv_server.preflight.packages import check_packages, installed_version


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        ("0.32.0", "0.32.0"),
        ("0.32.0+cpu", "0.32.0"),
        ("0.32", "0.32.0"),
        ("2.9.0.post1", "2.9.0.post1+x"),
    ],
)
def test_versions_with_equal_public_parts_match(found, wanted):
    check_packages({"vllm": wanted}, lambda name: found)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [("0.32.1", "0.32.0"), ("2.9.0.post1", "2.9.0"), ("0.32.0rc1", "0.32.0"), ("dev", "0.32.0")],
)
def test_other_versions_are_refused_with_found_and_wanted(found, wanted):
    with pytest.raises(RuntimeMismatch) as caught:
        check_packages({"vllm": wanted}, lambda name: found)
    assert caught.value.found == {"vllm": found}
    assert caught.value.wanted == {"vllm": wanted}
    assert f"vllm is {found}, wanted {wanted}" in caught.value.message


def test_all_mismatches_are_told_and_no_match_is():
    versions = {"a": "1.0", "b": "2.0"}
    with pytest.raises(RuntimeMismatch) as caught:
        check_packages({"a": "1.0", "b": "2.1", "c": "3.0"}, versions.get)
    assert caught.value.found == {"b": "2.0", "c": "not installed"}
    assert caught.value.wanted == {"b": "2.1", "c": "3.0"}


def test_the_real_environment_is_read():
    assert installed_version("pytest") == pytest.__version__
    assert installed_version("surely-not-installed") is None
