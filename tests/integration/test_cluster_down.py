"""`down` leaves the machine as it was, also when the bring-up was killed on its way."""

import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import cluster_rig
import pytest
from cluster_rig import IMAGE, Rig, build_pod

from rwkv_cluster import build, cleanup
from rwkv_cluster.layout import Layout

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(cluster_rig.why_not()), reason=cluster_rig.why_not()),
]

SLEEP = "exec busybox sleep 3600"
# Seconds into the bring-up; a whole one takes about five.
MOMENTS = (0.5, 0.8, 1.2, 2.0, 3.0, 4.0)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig("cidown")
    rig.run("down")
    rig.run("build")
    yield rig
    rig.run("down", "--images")


def traces(rig: Rig) -> list[str]:
    return cleanup.describe_traces(Layout(rig.name, build.cache_dir()))


def test_down_removes_a_cluster_with_pods(rig: Rig, tmp_path: Path) -> None:
    cluster_rig.build_image(tmp_path)
    before = cluster_rig.read_host()
    rig.run("up", "--nodes=2")
    rig.run("load-image", IMAGE)
    nodes = ("cidown-node1", "cidown-node2")
    rig.apply(*(build_pod(node, SLEEP, nodeName=node) for node in nodes))
    rig.wait("condition=Ready", *(f"pod/{node}" for node in nodes))
    assert traces(rig)

    rig.run("down")

    assert traces(rig) == []
    assert cluster_rig.read_host() == before
    assert rig.run("status", check=False).returncode == 3


def test_down_without_a_cluster_is_fine(rig: Rig) -> None:
    before = cluster_rig.read_host()
    rig.run("down")
    assert cluster_rig.read_host() == before


@pytest.mark.parametrize("moment", MOMENTS)
def test_down_after_a_killed_bring_up_leaves_nothing(rig: Rig, moment: float) -> None:
    before = cluster_rig.read_host()
    bring_up = rig.start("up")
    time.sleep(moment)
    bring_up.kill()
    bring_up.wait()

    rig.run("down")

    assert traces(rig) == []
    assert cluster_rig.read_host() == before


def test_up_after_a_killed_bring_up_starts_over(rig: Rig) -> None:
    bring_up = rig.start("up")
    time.sleep(2.0)
    bring_up.kill()
    bring_up.wait()

    rig.run("up")

    assert "Ready" in rig.kubectl("get", "nodes").stdout


def test_up_after_the_machine_lost_every_process_keeps_the_images(rig: Rig, tmp_path: Path) -> None:
    cluster_rig.build_image(tmp_path)
    rig.run("up")
    rig.run("load-image", IMAGE)
    rig.apply(build_pod("left", SLEEP))
    rig.wait("condition=Ready", "pod/left")
    pids = [
        line.rpartition(" ")[2]
        for line in rig.run("status").stdout.splitlines()
        if ": running, process " in line
    ]
    subprocess.run(["kill", f"-{signal.SIGKILL.value}", *pids], check=True)

    rig.run("up")

    assert "already on" in rig.run("load-image", IMAGE).stderr
    assert rig.kubectl("get", "pods", "-o=name").stdout == ""
    rig.apply(build_pod("again", SLEEP))
    rig.wait("condition=Ready", "pod/again")


def test_two_clusters_live_side_by_side(rig: Rig) -> None:
    other = Rig("cidownb")
    try:
        rig.run("up")
        other.run("up")
        names = {each.kubectl("get", "nodes", "-o=name").stdout.strip() for each in (rig, other)}
        assert names == {"node/cidown-node1", "node/cidownb-node1"}
        other.run("down")
        assert "Ready" in rig.kubectl("get", "nodes").stdout
    finally:
        other.run("down", "--images")
