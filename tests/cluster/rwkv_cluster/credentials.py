"""Writes the certificates and kubeconfigs of a whole cluster."""

from collections.abc import Iterable

from rwkv_cluster import controlplane, kubeconfig, pki
from rwkv_cluster.layout import Layout, Node

CA = "ca"


def write_control_plane(cluster: Layout, first: Node, url: str) -> None:
    """Make a new CA and all that the control plane needs from it."""
    folder = cluster.pki
    folder.mkdir(parents=True, exist_ok=True)
    authority = pki.create_authority(f"rwkv-cluster {cluster.name}")
    authority.pair().write(folder, CA)
    hosts = (
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "127.0.0.1",
        controlplane.KUBERNETES_SERVICE_IP,
        first.address,
    )
    authority.issue_server("kube-apiserver", hosts).write(folder, "apiserver")
    kubelet_client = authority.issue_client("kube-apiserver-kubelet-client", ("system:masters",))
    kubelet_client.write(folder, "apiserver-kubelet")
    pki.write_service_account_keys(folder)
    authority.issue_client("admin", ("system:masters",)).write(folder, "admin")
    _write_kubeconfig(cluster, authority, url, "admin", "admin", ("system:masters",))
    for name in ("kube-controller-manager", "kube-scheduler", "kube-proxy"):
        _write_kubeconfig(cluster, authority, url, name, f"system:{name}", ())


def write_node(node: Node, url: str) -> None:
    """Write the kubeconfig of a kubelet."""
    folder = node.cluster.pki
    authority = pki.load_authority(folder / f"{CA}.crt", folder / f"{CA}.key")
    user = f"system:node:{node.name}"
    _write_kubeconfig(node.cluster, authority, url, node.name, user, ("system:nodes",))


def _write_kubeconfig(
    cluster: Layout,
    authority: pki.Authority,
    url: str,
    name: str,
    user: str,
    groups: Iterable[str],
) -> None:
    client = authority.issue_client(user, groups)
    text = kubeconfig.build_kubeconfig(f"rwkv-{cluster.name}", url, authority.pem, client)
    pki.write_private(cluster.run / f"{name}.kubeconfig", text.encode())
