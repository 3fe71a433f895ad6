import json
from pathlib import Path

import pytest

from rwkv_cluster import __main__ as command_line
from rwkv_cluster import errors, kind, modes
from rwkv_cluster.current import CurrentCluster
from rwkv_cluster.progress import Progress


@pytest.mark.parametrize(
    ("asked", "kind_usable", "chosen"),
    [
        ("", False, "local"),
        ("", True, "kind"),
        ("local", True, "local"),
        ("kind", False, "kind"),
        ("current", True, "current"),
    ],
)
def test_what_is_asked_for_wins_else_what_works(asked: str, kind_usable: bool, chosen: str) -> None:
    assert modes.choose_mode(asked, kind_usable=kind_usable) == chosen


def test_an_unknown_mode_names_the_known_ones() -> None:
    with pytest.raises(errors.UsageError, match=r"CLUSTER=minikube.*local, kind, current"):
        modes.choose_mode("minikube", kind_usable=False)


def test_the_users_cluster_is_used_only_by_name() -> None:
    with pytest.raises(errors.UsageError, match="--context"):
        CurrentCluster("rwkv", "", Progress(None))


def test_kind_gets_a_control_plane_and_workers() -> None:
    config = kind.build_config(3)
    assert config.count("- role: control-plane") == 1
    assert config.count("- role: worker") == 2


def test_a_missing_cluster_is_one_line_and_a_status_of_its_own(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RWKV_CACHE", str(tmp_path))
    args = command_line.build_parser().parse_args(["--mode=kind", "--name=absent", "kubeconfig"])
    assert command_line.run(args, Progress(None)) == command_line.EXIT_NO_CLUSTER
    assert capsys.readouterr().err == "no cluster named absent: run `up` first\n"


def test_a_kubeconfig_holds_everything() -> None:
    from rwkv_cluster import kubeconfig, pki

    pair = pki.KeyPair(b"cert", b"key")
    config = json.loads(kubeconfig.build_kubeconfig("x", "https://h:1", b"ca", pair))
    assert config["current-context"] == "x"
    assert config["clusters"][0]["cluster"]["server"] == "https://h:1"
    assert not any("/" in str(value) for value in config["users"][0]["user"].values())
