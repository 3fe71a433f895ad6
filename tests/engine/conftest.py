"""One engine per model for all tests here: starting one is what costs.

Run by the engine environment's Python, see `make test-engine`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from engine_nursery import EngineNursery
    from inproc_engine import Engine
    from oracle import Oracle
    from server_process import ServerProcess
    from state_engine import StateEngine
    from vllm import LLM

# Read by torch, vLLM and the official implementation when they are imported.
os.environ |= {
    "OMP_NUM_THREADS": "1",  # two would wait for each other wherever other tests run beside
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "RWKV_V7_ON": "1",
    "RWKV_JIT_ON": "0",
}

TINY_RECALL = Path(__file__).resolve().parents[2] / "image" / "models" / "tiny-recall"

# What third parties warn of in their own code is theirs; a warning from ours stays an error.
THEIRS = r"(torch|vllm|transformers|rwkv|huggingface_hub|swig|importlib|pydantic)\b"
KINDS = ("DeprecationWarning", "FutureWarning", "UserWarning", "SyntaxWarning", "ImportWarning")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            for kind in KINDS:
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{kind}:{THEIRS}"))


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A random model of the 0.1B shape; 0.8 GB, so not kept."""
    import random_checkpoint

    folder = tmp_path_factory.mktemp("models") / "small"
    yield random_checkpoint.write_checkpoint(folder, random_checkpoint.SMALL, seed=1)
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def tiny_model() -> Path:
    """The bundled model."""
    return TINY_RECALL


@pytest.fixture(scope="session")
def tiny(tiny_model: Path) -> Engine:
    import inproc_engine

    return inproc_engine.Engine(tiny_model)


@pytest.fixture(scope="session")
def tiny_torch(tiny_model: Path) -> Engine:
    """The bundled model where no C++ library fits: what other devices and more ranks run."""
    from unittest import mock

    import inproc_engine

    with mock.patch("rwkv_server.model.cpu_layers.fit", return_value=None):
        return inproc_engine.Engine(tiny_model)


@pytest.fixture(scope="session")
def tiny_oracle(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    import oracle

    return oracle.Official(tiny_model, tmp_path_factory.mktemp("oracle"))


@pytest.fixture(scope="session")
def tiny_oracles(tiny_model: Path, tiny_oracle: Oracle) -> list[Oracle]:
    import oracle

    return [tiny_oracle, oracle.Another(tiny_model)]


@pytest.fixture(scope="session")
def small(small_model: Path) -> Engine:
    import inproc_engine

    return inproc_engine.Engine(small_model)


@pytest.fixture(scope="session")
def small_oracle(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    import oracle

    return oracle.Official(small_model, tmp_path_factory.mktemp("oracle"))


@pytest.fixture(scope="session")
def small_another(small_model: Path) -> Oracle:
    import oracle

    return oracle.Another(small_model)


@pytest.fixture(scope="session")
def kept() -> dict[str, Any]:
    """Engines that a test makes by itself; each has to be put here, or to be a session's fixture.

    One that ends takes vLLM's process groups with it, and other tests have engines in this process.
    """
    return {}


@pytest.fixture(scope="session")
def states(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> StateEngine:
    """The bundled model with the connector of states."""
    import state_engine

    memory = state_engine.Memory.of(tiny_model, tmp_path_factory.mktemp("states"))
    return state_engine.StateEngine.start(tiny_model, memory)


@pytest.fixture(scope="session")
def states_ahead(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> StateEngine:
    """The same, scheduled a step ahead as on GPUs."""
    import state_engine

    folder = tmp_path_factory.mktemp("states-ahead")
    with state_engine.forced_async_scheduling():
        return state_engine.StateEngine.start(
            tiny_model, state_engine.Memory.of(tiny_model, folder)
        )


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EngineNursery]:
    """Starts pods in a fraction of the time; their start itself is tested elsewhere."""
    import engine_nursery

    with engine_nursery.nursery(tmp_path_factory.mktemp("nursery")) as nursery:
        yield nursery


@pytest.fixture(scope="session", autouse=True)
def nursery_that_imports_beside_the_first_tests(request: pytest.FixtureRequest) -> None:
    """Start it before it is needed, if it is."""
    if any("nursery" in getattr(item, "fixturenames", ()) for item in request.session.items):
        request.getfixturevalue("nursery")


@pytest.fixture(scope="session")
def state_server(
    nursery: EngineNursery, tiny_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    """A pod that serves the bundled model, with a store that takes clients' names."""
    folder = tmp_path_factory.mktemp("state-server")
    server = nursery.pod(
        folder,
        tiny_model,
        model__maxModelLen=512,
        engine__maxNumBatchedTokens=64,
        state__store="persistentVolumeClaim",
    )
    try:
        server.wait_until_ready(300)
        yield server
    finally:
        server.stop()


@pytest.fixture(scope="session")
def recall_engine(tiny_model: Path) -> LLM:
    import recall_chats

    return recall_chats.start(tiny_model)
