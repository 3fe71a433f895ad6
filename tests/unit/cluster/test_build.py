from pathlib import Path

import pytest

from rwkv_cluster import build, errors, tools
from rwkv_cluster.progress import Progress


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in build.SOURCE_FOLDERS:
        (tmp_path / "source" / name).mkdir(parents=True)
        (tmp_path / "source" / name / "file").write_text(name)
    monkeypatch.setattr(build, "SOURCE_DIR", tmp_path / "source")
    monkeypatch.setenv("RWKV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "source"


def test_a_changed_source_goes_to_another_folder(source: Path) -> None:
    before = build.bin_dir()
    (source / "go" / "file").write_text("changed")
    assert build.bin_dir() != before


def test_a_moved_source_goes_to_another_folder(source: Path) -> None:
    before = build.source_hash()
    (source / "go" / "file").rename(source / "pause" / "moved")
    assert build.source_hash() != before


def test_what_is_built_is_not_built_again(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def fake_build(name: str, folder: Path) -> None:
        calls.append(name)
        (folder / name).touch()

    monkeypatch.setattr(build, "_build", fake_build)
    build.ensure(["kube", "helm"], Progress(None))
    build.ensure(["kube", "helm", "ctr"], Progress(None))
    assert calls == ["kube", "helm", "ctr"]


def test_leftovers_of_a_killed_build_are_removed(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_build", lambda name, folder: (folder / name).touch())
    leftover = build.bin_dir() / f"{build.SCRATCH_PREFIX}dead"
    leftover.mkdir(parents=True)
    build.ensure(["kube"], Progress(None))
    assert not leftover.exists()


def test_kubernetes_components_come_from_one_program(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "_build", lambda name, folder: (folder / name).touch())
    assert build.binary("kubectl", Progress(None)) == build.bin_dir() / "kubectl"
    with pytest.raises(errors.UsageError, match="minikube: no such program"):
        build.binary("minikube", Progress(None))


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RWKV_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert build.cache_dir() == Path("/xdg/rwkv-operator")
    monkeypatch.setenv("RWKV_CACHE", "/named")
    assert build.cache_dir() == Path("/named")


@pytest.mark.parametrize(("tool", "package"), [("runc", "runc"), ("nft", "nftables")])
def test_a_missing_tool_names_its_debian_package(
    tool: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(tools, "SYSTEM_PATH", "/nowhere")
    with pytest.raises(errors.MissingTool, match=f"{tool}: not found.*apt-get install {package}"):
        tools.find(tool)


def test_every_package_that_errors_name_is_installed_by_ci() -> None:
    listed = (Path(__file__).parents[3] / ".ci" / "apt-packages.txt").read_text().split()
    named = " ".join(tools.PACKAGES.values()).split()
    assert set(named) <= set(listed)
