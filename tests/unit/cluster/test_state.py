from pathlib import Path

import pytest

from rwkv_cluster import layout, state
from rwkv_cluster.layout import Layout
from rwkv_cluster.state import State


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    monkeypatch.setattr(layout, "RUN_ROOT", tmp_path / "run")
    return Layout("test", tmp_path / "cache")


def test_a_record_comes_back_as_written(cluster: Layout) -> None:
    written = State("10.213.7", "/bin/abc", nodes=2)
    state.write(cluster, written)
    assert state.read(cluster) == written
    assert [path.name for path in cluster.run.iterdir()] == ["state.json"]


def test_a_later_record_replaces_the_earlier(cluster: Layout) -> None:
    state.write(cluster, State("10.213.7", "/bin/abc"))
    state.write(cluster, State("10.213.7", "/bin/abc").with_nodes(1))
    found = state.read(cluster)
    assert found is not None and found.nodes == 1


@pytest.mark.parametrize(
    "text",
    [None, "", "{", "[]", "{}", '{"subnet": "10.213.7", "binaries": "/b", "nodes": "many"}'],
    ids=["absent", "empty", "torn", "a list", "without fields", "no number"],
)
def test_a_record_that_makes_no_sense_counts_as_none(cluster: Layout, text: str | None) -> None:
    cluster.run.mkdir(parents=True)
    if text is not None:
        state.path(cluster).write_text(text)
    assert state.read(cluster) is None
