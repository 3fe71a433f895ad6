import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).parents[3] / "image" / "ascend" / "check.py"
SPEC = importlib.util.spec_from_file_location("ascend_check", FILE)
assert SPEC and SPEC.loader
check = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(check)

NEEDS = [
    "starlette>=0.37; extra == 'server'",
    "kopf>=1.45; extra == 'operator'",
    "numpy>=1.24; extra == 'server'",
]


def test_what_was_moved_or_removed_is_named_and_what_was_added_is_not() -> None:
    before = {"torch": "2.9.0", "numpy": "1.26.4", "idna": "3.20"}
    after = {"torch": "2.10.0", "idna": "3.20", "pyrwkv-tokenizer": "0.9.1"}
    assert check.find_moved(before, after) == [
        "numpy was 1.26.4 and is gone",
        "torch was 2.9.0 and is 2.10.0",
    ]
    assert check.find_moved(before, {**before, "pyrwkv-tokenizer": "0.9.1"}) == []


@pytest.mark.parametrize(
    ("installed", "unmet"),
    [
        ({"starlette": "0.50.0", "numpy": "1.26.4"}, []),
        ({"starlette": "0.30.0", "numpy": "1.26.4"}, ["starlette>=0.37 is 0.30.0"]),
        ({"starlette": "0.50.0"}, ["numpy>=1.24 is missing"]),
    ],
)
def test_only_the_servers_own_needs_are_asked_for(
    installed: dict[str, str], unmet: list[str]
) -> None:
    assert check.find_unmet(NEEDS, installed) == unmet


def test_what_is_installed_goes_by_plain_names() -> None:
    found = check.read_installed()
    assert found["pyyaml"] and "prometheus-client" in found
