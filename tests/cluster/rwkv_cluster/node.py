"""Starts one node: its namespaces, containerd, kubelet, kube-proxy and the policy enforcer."""

from pathlib import Path

from rwkv_cluster import cgroups, images, kube, netns, nodefiles, process, tools
from rwkv_cluster.controlplane import SERVICE_CIDR
from rwkv_cluster.layout import Node
from rwkv_cluster.process import Component, Runner

START_SECONDS = 60

# The kubelet would write these on the host. It finds its wishes fulfilled in bind-mounted files
# instead, and leaves the host's kernel alone.
KUBELET_SYSCTLS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
# Paths that the programs have compiled in; each node gets its own in their place.
FIXED_FOLDERS = ("/run/containerd", "/var/lib/cni", "/var/lib/kubelet")

# Holds the node's mount namespace: all mounts of its pods are in there and end with it.
_HOLDER = f"""set -e
run=$1; live=$2; pause=$3; shift 3
mount --make-rshared /
for folder in {" ".join(FIXED_FOLDERS)}; do
  mkdir -p "$live$folder"; mount --bind "$live$folder" "$folder"
done
while [ $# -gt 0 ]; do mount --bind "$run/sysctl/$1" "/proc/sys/$1"; shift; done
touch "$run/held"
exec "$pause"
"""


def create_namespaces(runner: Runner, node: Node, binaries: Path) -> None:
    """Make the node's network and mount namespaces and control group."""
    for folder in (node.run / "cni", node.live / "pod-logs", node.store):
        folder.mkdir(parents=True, exist_ok=True)
    cgroups.create(node.cgroup)
    netns.create(runner, node)
    for key, value in KUBELET_SYSCTLS.items():
        target = node.run / "sysctl" / key
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(f"{value}\n")
    for fixed in FIXED_FOLDERS:
        Path(fixed).mkdir(parents=True, exist_ok=True)
    enter = (tools.find("nsenter"), f"--net=/run/netns/{node.netns}")
    script = ("sh", "-c", _HOLDER, "holder", str(node.run), str(node.live), str(binaries / "pause"))
    unshare = (tools.find("unshare"), "--mount", "--propagation", "private")
    runner.spawn(Component(holder_name(node), [*unshare, *script, *KUBELET_SYSCTLS], enter))
    held = node.run / "held"
    kube.wait_until(held.exists, f"{node.name}: mount namespace", START_SECONDS, pause=0.01)


def start_runtime(runner: Runner, node: Node, binaries: Path) -> None:
    """Start containerd, rid it of what an unclean end left, and give it the pause image."""
    (node.run / "cni" / "10-pods.conflist").write_text(nodefiles.build_cni_config(node))
    config = node.run / "containerd.toml"
    config.write_text(nodefiles.build_containerd_config(node, tools.find("runc")))
    name = f"containerd{node.number}"
    component = Component(
        name,
        [str(binaries / "containerd"), f"--config={config}"],
        enter_command(node),
        {"PATH": f"{binaries}:{process.PATH}"},
    )
    store = images.Store(runner, node.socket, binaries)
    what = f"{name} answers (log: {process.log_file(runner.layout, name)})"
    runner.spawn(component)
    kube.wait_until(store.is_up, what, START_SECONDS)
    if store.purge():
        # Its CRI part has read the old containers at start and would report them.
        process.stop(runner.layout, name)
        runner.spawn(component)
        kube.wait_until(store.is_up, what, START_SECONDS)
    if not store.has(nodefiles.PAUSE_IMAGE):
        store.load_program(nodefiles.PAUSE_IMAGE, binaries / "pause")


def start_kubelet(runner: Runner, node: Node, binaries: Path) -> None:
    """Start the kubelet, which registers the node."""
    config = node.run / "kubelet.yaml"
    config.write_text(nodefiles.build_kubelet_config(node))
    (node.run / "resolv.conf").write_text("")
    command = [
        str(binaries / "kubelet"),
        f"--config={config}",
        f"--kubeconfig={node.cluster.run / f'{node.name}.kubeconfig'}",
        f"--root-dir={node.live / 'kubelet'}",
        f"--cert-dir={node.run / 'kubelet-pki'}",
        f"--hostname-override={node.name}",
        f"--node-ip={node.address}",
    ]
    _spawn(runner, node, "kubelet", command)


def start_network(runner: Runner, node: Node, binaries: Path) -> None:
    """Start kube-proxy and the NetworkPolicy enforcer; both want to find the Node object."""
    config = node.run / "kube-proxy.yaml"
    kubeconfig = node.cluster.run / "kube-proxy.kubeconfig"
    config.write_text(nodefiles.build_proxy_config(node, kubeconfig))
    _spawn(runner, node, "kube-proxy", [str(binaries / "kube-proxy"), f"--config={config}"])
    router = [
        str(binaries / "kube-router"),
        f"--kubeconfig={node.cluster.kubeconfig}",
        f"--hostname-override={node.name}",
        f"--service-cluster-ip-range={SERVICE_CIDR}",
        "--run-firewall=true",
        "--run-router=false",
        "--run-service-proxy=false",
        "--run-loadbalancer=false",
    ]
    _spawn(runner, node, "kube-router", router)


def _spawn(runner: Runner, node: Node, part: str, command: list[str]) -> None:
    name, environment = f"{part}{node.number}", {"PATH": process.PATH}
    runner.spawn(Component(name, command, enter_command(node), environment))


def enter_command(node: Node) -> tuple[str, ...]:
    """The command that puts a program into the node's network and mount namespaces."""
    holder = process.list_running(node.cluster)[holder_name(node)]
    return (tools.find("nsenter"), f"--target={holder}", "--net", "--mount")


def holder_name(node: Node) -> str:
    """Name of the component that holds the node's mount namespace."""
    return f"holder{node.number}"


def list_components(number: int) -> set[str]:
    """Names of all components of one node."""
    parts = ("holder", "containerd", "kubelet", "kube-proxy", "kube-router")
    return {f"{part}{number}" for part in parts}
