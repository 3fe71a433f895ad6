from pathlib import Path

import pytest

from rwkv_cluster import controlplane
from rwkv_cluster.controlplane import ControlPlane

PLANE = ControlPlane(Path("/pki"), Path("/data"), "10.213.5.2", 6443, 2379, 2380)
KUBECONFIG = Path("/run/x.kubeconfig")


def flags(args: list[str]) -> dict[str, str]:
    pairs = [arg.removeprefix("--").partition("=") for arg in args]
    assert len({name for name, _, _ in pairs}) == len(pairs), "a flag is given twice"
    return {name: value for name, _, value in pairs}


def test_etcd_listens_on_loopback_only() -> None:
    found = flags(controlplane.build_etcd_args(PLANE))
    for name, value in found.items():
        if name.endswith("urls"):
            assert value.startswith("http://127.0.0.1:"), name
    assert found["data-dir"] == "/data/etcd"


def test_a_bare_api_server_admits_pods_without_service_accounts() -> None:
    without = flags(controlplane.build_bare_apiserver_args(PLANE, service_accounts=False))
    assert without["disable-admission-plugins"] == "ServiceAccount"
    with_them = flags(controlplane.build_bare_apiserver_args(PLANE, service_accounts=True))
    assert "disable-admission-plugins" not in with_them


def test_a_bare_api_server_advertises_no_loopback_endpoint() -> None:
    found = flags(controlplane.build_bare_apiserver_args(PLANE, service_accounts=False))
    assert found["endpoint-reconciler-type"] == "none"
    assert found["authorization-mode"] == "RBAC"


def test_an_api_server_with_nodes_reaches_kubelets_by_address() -> None:
    found = flags(controlplane.build_node_apiserver_args(PLANE))
    assert found["authorization-mode"] == "Node,RBAC"
    assert found["enable-admission-plugins"] == "NodeRestriction"
    assert found["kubelet-preferred-address-types"] == "InternalIP"
    assert found["kubelet-client-certificate"] == "/pki/apiserver-kubelet.crt"


def test_claims_are_bound_within_a_second() -> None:
    found = flags(controlplane.build_node_controller_args(PLANE, KUBECONFIG))
    assert found["pvclaimbinder-sync-period"] == "1s"
    assert found["allocate-node-cidrs"] == "false"


@pytest.mark.parametrize(
    ("workloads", "runs"), [(False, False), (True, True)], ids=["basic", "workloads"]
)
def test_bare_controllers_always_collect_garbage(workloads: bool, runs: bool) -> None:
    args = controlplane.build_bare_controller_args(PLANE, KUBECONFIG, workloads=workloads)
    chosen = flags(args)["controllers"].split(",")
    assert "garbage-collector-controller" in chosen
    assert "namespace-controller" in chosen
    assert ("statefulset-controller" in chosen) is runs
    assert flags(args)["secure-port"] == "0"


@pytest.mark.parametrize(
    "args",
    [
        controlplane.build_bare_controller_args(PLANE, KUBECONFIG, workloads=True),
        controlplane.build_node_controller_args(PLANE, KUBECONFIG),
        controlplane.build_scheduler_args(PLANE, KUBECONFIG),
    ],
    ids=["bare controllers", "controllers", "scheduler"],
)
def test_single_components_elect_no_leader(args: list[str]) -> None:
    assert flags(args)["leader-elect"] == "false"
