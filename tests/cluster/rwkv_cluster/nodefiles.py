"""Renders the configuration files of a node: containerd, CNI, kubelet, kube-proxy, CoreDNS. Pure.

YAML files are written as JSON, which is YAML too.
"""

import json
from pathlib import Path
from typing import Any

from rwkv_cluster.controlplane import POD_CIDR
from rwkv_cluster.layout import Node
from rwkv_cluster.tools import CNI_DIR

DNS_SERVICE_IP = "10.96.0.10"
DNS_READY_PORT = 8181
DOMAIN = "cluster.local"
PAUSE_IMAGE = "docker.io/rwkv-cluster/pause:1"
_RUNTIME = "io.containerd.cri.v1.runtime"
_IMAGES = "io.containerd.cri.v1.images"


def build_containerd_config(node: Node, runc: str) -> str:
    """containerd with sockets, root and state of its own."""
    return f"""version = 3
root = {_toml(node.store)}
state = {_toml(node.run / "containerd")}
disabled_plugins = ["io.containerd.nri.v1.nri"]

[grpc]
address = {_toml(node.socket)}

[ttrpc]
address = {_toml(node.run / "containerd.ttrpc")}

[plugins."{_RUNTIME}"]
# Lowering a process's OOM score needs CAP_SYS_RESOURCE, which a container's root may lack.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins."{_RUNTIME}".cni]
bin_dirs = [{_toml(CNI_DIR)}]
conf_dir = {_toml(node.run / "cni")}

[plugins."{_RUNTIME}".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."{_RUNTIME}".containerd.runtimes.runc.options]
BinaryName = {_toml(runc)}
SystemdCgroup = false

[plugins."{_IMAGES}".pinned_images]
sandbox = {_toml(PAUSE_IMAGE)}
"""


def build_cni_config(node: Node) -> str:
    """A bridge per node; no masquerading, so that pods see each other's true addresses."""
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(node.run / "ipam"),
            "ranges": [[{"subnet": node.pod_cidr}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return _json({"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]})


def build_kubelet_config(node: Node) -> str:
    """The kubelet's configuration."""
    return _json(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "containerRuntimeEndpoint": f"unix://{node.socket}",
            "address": node.address,
            "healthzBindAddress": "127.0.0.1",
            "podLogsDir": str(node.live / "pod-logs"),
            "resolvConf": str(node.run / "resolv.conf"),
            "clusterDNS": [DNS_SERVICE_IP],
            "clusterDomain": DOMAIN,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(node.cluster.pki / "ca.crt")},
            },
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{node.cgroup}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "oomScoreAdj": 0,
            "makeIPTablesUtilChains": False,
            # A changed Secret or ConfigMap is seen by pods within this time.
            "syncFrequency": "10s",
            # The lease is renewed every quarter of this; the controller waits 20 s for it.
            "nodeLeaseDurationSeconds": 12,
            "nodeStatusUpdateFrequency": "2s",
            "maxPods": 110,
            # A nearly full disk of a developer is no reason to evict or to drop images.
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "evictionHard": {
                "memory.available": "50Mi",
                "nodefs.available": "1%",
                "nodefs.inodesFree": "1%",
                "imagefs.available": "1%",
                "imagefs.inodesFree": "1%",
            },
        }
    )


def build_proxy_config(node: Node, kubeconfig: Path) -> str:
    """kube-proxy on nftables; it must not set conntrack limits, those are the host's."""
    return _json(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "clusterCIDR": POD_CIDR,
            "hostnameOverride": node.name,
            "clientConnection": {"kubeconfig": str(kubeconfig)},
            "oomScoreAdj": 0,
            "healthzBindAddress": "127.0.0.1:10256",
            "metricsBindAddress": "127.0.0.1:10249",
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
        }
    )


def build_corefile(kubeconfig: Path) -> str:
    """DNS of the cluster; every other name doesn't exist, and that is said at once.

    Without a cache: with one, a new pod's name takes seconds to appear.
    """
    return f"""{DOMAIN} in-addr.arpa {{
    errors
    ready :{DNS_READY_PORT}
    kubernetes {DOMAIN} in-addr.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 5
    }}
}}
. {{
    errors
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""


def _toml(value: object) -> str:
    # A TOML basic string and a JSON string are alike for paths.
    return json.dumps(str(value))


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=1) + "\n"
