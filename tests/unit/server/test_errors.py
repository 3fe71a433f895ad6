from __future__ import annotations

import pytest

from rwkv_server import errors

CODES = {
    errors.ConfigInvalid: 64,
    errors.ModelInvalid: 65,
    errors.ModelNotFound: 66,
    errors.EngineFailed: 70,
    errors.StoreUnreachable: 74,
    errors.StoreDenied: 74,
    errors.RuntimeMismatch: 78,
}


@pytest.mark.parametrize(("kind", "code"), CODES.items(), ids=lambda value: str(value))
def test_reason_and_exit_code_are_the_contract(kind, code):
    error = kind("what happened", found=1, wanted=2)
    assert (error.reason, error.exit_code) == (kind.__name__, code)
    assert (str(error), error.found, error.wanted) == ("what happened", 1, 2)
