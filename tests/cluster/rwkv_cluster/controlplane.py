"""Argument lists of etcd, API server, controller manager and scheduler. Pure: values in, lists out.

Every flag that isn't plain wiring says why it is there.
"""

from dataclasses import dataclass
from pathlib import Path

SERVICE_CIDR = "10.96.0.0/16"
KUBERNETES_SERVICE_IP = "10.96.0.1"
POD_CIDR = "10.244.0.0/16"
ISSUER = "https://kubernetes.default.svc.cluster.local"

# What an API server without a node needs so that owner references and namespaces behave.
BASIC_CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "clusterrole-aggregation-controller",
    "root-ca-certificate-publisher-controller",
)
WORKLOAD_CONTROLLERS = (
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "endpointslice-controller",
    "disruption-controller",
)


@dataclass(frozen=True)
class ControlPlane:
    """Where a control plane listens and keeps its files."""

    pki: Path
    data: Path
    address: str
    port: int
    etcd_port: int = 2379
    etcd_peer_port: int = 2380

    @property
    def url(self) -> str:
        """The API server's address."""
        return f"https://{self.address}:{self.port}"


def build_etcd_args(plane: ControlPlane) -> list[str]:
    """Arguments of etcd: one member, on loopback."""
    client = f"http://127.0.0.1:{plane.etcd_port}"
    peer = f"http://127.0.0.1:{plane.etcd_peer_port}"
    return [
        "--name=default",
        f"--data-dir={plane.data / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        # Nothing here outlives a power cut anyway, and fsync is most of a write's time.
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def build_apiserver_args(plane: ControlPlane) -> list[str]:
    """Arguments of the API server that both modes share."""
    pki = plane.pki
    return [
        f"--bind-address={plane.address}",
        f"--advertise-address={plane.address}",
        f"--secure-port={plane.port}",
        f"--etcd-servers=http://127.0.0.1:{plane.etcd_port}",
        f"--cert-dir={plane.data / 'apiserver'}",
        f"--client-ca-file={pki / 'ca.crt'}",
        f"--tls-cert-file={pki / 'apiserver.crt'}",
        f"--tls-private-key-file={pki / 'apiserver.key'}",
        f"--service-account-key-file={pki / 'service-account.pub'}",
        f"--service-account-signing-key-file={pki / 'service-account.key'}",
        f"--service-account-issuer={ISSUER}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--allow-privileged=true",
        # A stopping server would otherwise wait a minute for watches to end.
        "--shutdown-delay-duration=0s",
    ]


def build_bare_apiserver_args(plane: ControlPlane, *, service_accounts: bool) -> list[str]:
    """Arguments of an API server without nodes.

    Args:
        plane: Its addresses and files.
        service_accounts: Whether a controller makes the default ServiceAccounts; without one the
            admission plugin would refuse every pod.
    """
    args = [
        *build_apiserver_args(plane),
        "--authorization-mode=RBAC",
        # A loopback address can't be an endpoint of the kubernetes Service.
        "--endpoint-reconciler-type=none",
    ]
    if not service_accounts:
        args.append("--disable-admission-plugins=ServiceAccount")
    return args


def build_node_apiserver_args(plane: ControlPlane) -> list[str]:
    """Arguments of an API server with kubelets."""
    pki = plane.pki
    return [
        *build_apiserver_args(plane),
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--kubelet-client-certificate={pki / 'apiserver-kubelet.crt'}",
        f"--kubelet-client-key={pki / 'apiserver-kubelet.key'}",
        # Node names don't resolve here: logs and exec would fail by name.
        "--kubelet-preferred-address-types=InternalIP",
        # Tests of lost nodes can't wait five minutes for an eviction.
        "--default-not-ready-toleration-seconds=5",
        "--default-unreachable-toleration-seconds=5",
    ]


def build_bare_controller_args(
    plane: ControlPlane, kubeconfig: Path, *, workloads: bool
) -> list[str]:
    """Arguments of the controller manager beside an API server without nodes."""
    chosen = BASIC_CONTROLLERS + (WORKLOAD_CONTROLLERS if workloads else ())
    return [
        *_controller_args(plane, kubeconfig),
        f"--controllers={','.join(chosen)}",
        "--secure-port=0",
    ]


def build_node_controller_args(plane: ControlPlane, kubeconfig: Path) -> list[str]:
    """Arguments of the controller manager of a whole cluster."""
    return [
        *_controller_args(plane, kubeconfig),
        "--use-service-account-credentials",
        f"--cluster-signing-cert-file={plane.pki / 'ca.crt'}",
        f"--cluster-signing-key-file={plane.pki / 'ca.key'}",
        f"--cluster-cidr={POD_CIDR}",
        # The bring-up sets each node's range itself: its routes follow from it.
        "--allocate-node-cidrs=false",
        "--bind-address=127.0.0.1",
        # A claim that misses its volume's birth is only looked at again after this: 17 s -> 0.8 s.
        "--pvclaimbinder-sync-period=1s",
        "--node-monitor-period=1s",
        "--node-monitor-grace-period=8s",
    ]


def _controller_args(plane: ControlPlane, kubeconfig: Path) -> list[str]:
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        # There is no aggregated API server whose settings could be looked up.
        "--authentication-skip-lookup=true",
        f"--cert-dir={plane.data / 'controllers'}",
        f"--root-ca-file={plane.pki / 'ca.crt'}",
        f"--service-account-private-key-file={plane.pki / 'service-account.key'}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--leader-elect=false",
    ]


def build_scheduler_args(plane: ControlPlane, kubeconfig: Path) -> list[str]:
    """Arguments of the scheduler."""
    return [
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--authentication-skip-lookup=true",
        f"--cert-dir={plane.data / 'scheduler'}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
    ]
