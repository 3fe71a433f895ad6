from __future__ import annotations

import pytest

from rwkv_server.preflight.machine import LocalMachine
from rwkv_server.preflight.packages import read_package


def test_the_real_environment_is_read():
    (there,) = read_package("pytest", LocalMachine())
    (gone,) = read_package("surely-not-installed", LocalMachine())
    assert there.value == pytest.__version__
    assert (gone.value, gone.problem) == (None, "not installed")
