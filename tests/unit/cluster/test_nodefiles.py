import json
from pathlib import Path

import tomllib

from rwkv_cluster import nodefiles
from rwkv_cluster.layout import Layout

NODE = Layout("test", Path('/cache with "quotes"')).node(2, "10.213.9")


def test_containerd_keeps_to_its_own_folders() -> None:
    config = tomllib.loads(nodefiles.build_containerd_config(NODE, "/usr/sbin/runc"))
    assert config["root"] == str(NODE.store)
    assert config["state"].startswith(str(NODE.run))
    assert config["grpc"]["address"] == str(NODE.socket)
    runtime = config["plugins"]["io.containerd.cri.v1.runtime"]
    assert runtime["restrict_oom_score_adj"] is True
    assert runtime["cni"]["conf_dir"].startswith(str(NODE.run))
    assert runtime["containerd"]["runtimes"]["runc"]["options"]["SystemdCgroup"] is False
    images = config["plugins"]["io.containerd.cri.v1.images"]
    assert images["pinned_images"]["sandbox"] == nodefiles.PAUSE_IMAGE


def test_pods_keep_their_addresses_across_nodes() -> None:
    bridge = json.loads(nodefiles.build_cni_config(NODE))["plugins"][0]
    assert bridge["ipMasq"] is False
    assert bridge["hairpinMode"] is True
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.244.2.0/24"}]]


def test_the_kubelet_lives_in_the_clusters_control_group() -> None:
    config = json.loads(nodefiles.build_kubelet_config(NODE))
    assert config["cgroupRoot"] == "/rwkv-test/node2"
    assert config["failCgroupV1"] is False
    assert config["syncFrequency"] == "10s"
    assert config["authentication"]["anonymous"]["enabled"] is False
    # A lease that lives no longer than the controller's patience would make the node flap.
    assert config["nodeLeaseDurationSeconds"] < 20
    thresholds = (config["imageGCLowThresholdPercent"], config["imageGCHighThresholdPercent"])
    assert thresholds[0] < thresholds[1] <= 100


def test_the_proxy_leaves_the_hosts_conntrack_limits_alone() -> None:
    config = json.loads(nodefiles.build_proxy_config(NODE, Path("/run/k")))
    assert config["mode"] == "nftables"
    assert set(config["conntrack"].values()) == {0, "0s"}


def test_names_outside_the_cluster_do_not_exist() -> None:
    text = nodefiles.build_corefile(Path("/run/k"))
    assert "rcode NXDOMAIN" in text
    assert "forward" not in text
    assert text.count("{") == text.count("}")
