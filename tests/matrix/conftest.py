"""vLLM is imported while tests are collected here; what it warns of in its own code is its own."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    for kind in ("DeprecationWarning", "FutureWarning", "UserWarning"):
        config.addinivalue_line("filterwarnings", f"ignore::{kind}:(torch|vllm|transformers)")
