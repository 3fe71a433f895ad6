from __future__ import annotations

import pytest

from rwkv_operator.api import quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1Gi", 2**30),
        ("250m", "0.25"),
        ("1e3", None),
        ("", None),
        (None, None),
        ("0.5", "0.5"),
        ("1.2.3", None),
    ],
)
def test_quantities(text: object, value: object) -> None:
    found = quantity.amount(text)
    assert found is None if value is None else str(float(str(value))) == str(float(found or 0))


@pytest.mark.parametrize(
    ("text", "limit", "smaller"),
    [("1Gi", "500M", "500M"), ("2", "2000m", "2"), ("1", "1.5", "1"), ("1", "much", "1")],
)
def test_the_smaller_one_is_told_as_it_is_written(text: str, limit: str, smaller: str) -> None:
    assert quantity.at_most(text, limit) == smaller
