"""What kind is called with; the program itself needs a Docker engine."""

from pathlib import Path

import pytest

from rwkv_cluster import build, kind
from rwkv_cluster.progress import Progress


def test_the_users_kubeconfig_is_never_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(build, "cache_dir", lambda: tmp_path)
    monkeypatch.setattr(kind, "_run", lambda *command: calls.append(command) or "")
    cluster = kind.KindCluster("demo", Progress(stream=None))
    cluster.up(1)
    cluster.down()
    own = f"--kubeconfig={cluster.kubeconfig}"
    changing = [call for call in calls if call[1] in ("create", "delete")]
    assert [call[1] for call in changing] == ["create", "delete"]
    assert all(own in call for call in changing)
    assert str(cluster.kubeconfig).startswith(str(tmp_path))
