"""A plugin of vLLM for tests: a served engine schedules a step ahead, as it does on GPUs.

Put this folder and `tests/support` on an engine's path.
"""

from __future__ import annotations

import contextlib

_open = contextlib.ExitStack()


def register() -> None:
    """Once in each process."""
    import state_engine

    if not _open._exit_callbacks:  # type: ignore[attr-defined]
        _open.enter_context(state_engine.forced_async_scheduling())
