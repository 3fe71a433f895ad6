"""Network of a cluster: one namespace per node, a bridge between them, one cable to the host.

    host ── rwkv-<name> ══ host0 ┐
                        node 1: bridge `nodes` ── cni0 ── pods
    node 2: eth0 ══ node2 ───────┘

Node 1's namespace has the bridge. Nothing has a default route, so nothing gets outside; on the host
there is one link with one address, and no rule, route or sysctl besides.
"""

import json
from pathlib import Path

from rwkv_cluster import layout as layouts
from rwkv_cluster.layout import Layout, Node
from rwkv_cluster.process import Runner

BRIDGE = "nodes"
REGISTRY = Path("/run/netns")
# The host may open connections into the cluster; nothing in the cluster may open one to the host.
_HOST_GUARD = """
table inet rwkv-host-guard {{
  chain local {{ type filter hook output priority -10; ip daddr {host} ct state new reject; }}
  chain routed {{ type filter hook forward priority -10; ip daddr {host} ct state new reject; }}
}}
"""
_SYSCTLS = {
    "net/ipv4/ip_forward": "1",
    "net/bridge/bridge-nf-call-iptables": "1",
    "net/ipv6/conf/all/disable_ipv6": "1",
    "net/ipv6/conf/default/disable_ipv6": "1",
}


def choose_subnet(runner: Runner) -> str:
    """Choose a node network that no route of the host overlaps."""
    routes = json.loads(runner.run("ip", "-j", "-4", "route", "show", "table", "all"))
    taken = [route["dst"] for route in routes]
    return layouts.choose_subnet(runner.layout.name, taken)


def create(runner: Runner, node: Node) -> None:
    """Make a node's namespace and connect it."""
    ip = ["ip", "-netns", node.netns]
    runner.run("ip", "netns", "add", node.netns)
    for key, value in _SYSCTLS.items():
        write = f"[ ! -e /proc/sys/{key} ] || echo {value} > /proc/sys/{key}"
        runner.run("ip", "netns", "exec", node.netns, "sh", "-c", write)
    runner.run(*ip, "link", "set", "lo", "up")
    if node.number == 1:
        runner.run(*ip, "link", "add", BRIDGE, "type", "bridge")
        _connect_host(runner, node)
        port = BRIDGE
    else:
        _connect_node(runner, node)
        port = "eth0"
    runner.run(*ip, "address", "add", f"{node.address}/24", "dev", port)
    runner.run(*ip, "link", "set", port, "up")
    guard = node.run / "host-guard.nft"
    guard.write_text(_HOST_GUARD.format(host=layouts.host_address(node.subnet)))
    runner.run("ip", "netns", "exec", node.netns, "nft", f"--file={guard}")
    _route_pods(runner, node)


def delete(runner: Runner, cluster: Layout) -> None:
    """Remove the namespaces and the cable; what is in a namespace goes with it."""
    runner.try_run("ip", "link", "delete", cluster.link)
    for number in range(layouts.MAX_NODES, 0, -1):
        name = layouts.build_netns_name(cluster.name, number)
        if exists(runner, name):
            runner.run("ip", "netns", "delete", name)
    _unmount_empty_registry(runner)


def _unmount_empty_registry(runner: Runner) -> None:
    """`ip netns add` mounts its folder once; with the last namespace that mount goes too."""
    if REGISTRY.is_dir() and not any(REGISTRY.iterdir()):
        runner.try_run("umount", str(REGISTRY))
        try:
            REGISTRY.rmdir()
        except OSError:
            return


def exists(runner: Runner, netns: str) -> bool:
    """Whether a namespace of that name is there."""
    listed = runner.run("ip", "netns", "list").splitlines()
    return any(line.split(" ")[0] == netns for line in listed)


def _connect_host(runner: Runner, node: Node) -> None:
    link = node.cluster.link
    ends = ("type", "veth", "peer", "name", "host0", "netns", node.netns)
    runner.run("ip", "link", "add", link, *ends)
    runner.run("ip", "link", "set", link, "addrgenmode", "none")
    runner.run("ip", "address", "add", f"{layouts.host_address(node.subnet)}/24", "dev", link)
    runner.run("ip", "link", "set", link, "up")
    runner.run("ip", "-netns", node.netns, "link", "set", "host0", "master", BRIDGE, "up")


def _connect_node(runner: Runner, node: Node) -> None:
    first, end = node.cluster.node(1, node.subnet), f"node{node.number}"
    ip = ("ip", "-netns", first.netns)
    ends = ("type", "veth", "peer", "name", "eth0", "netns", node.netns)
    runner.run(*ip, "link", "add", end, *ends)
    runner.run(*ip, "link", "set", end, "master", BRIDGE, "up")


def _route_pods(runner: Runner, node: Node) -> None:
    """Tell this node and the older ones where each other's pods are."""
    for number in range(1, node.number):
        other = node.cluster.node(number, node.subnet)
        for here, there in ((node, other), (other, node)):
            route = ("route", "replace", there.pod_cidr, "via", there.address)
            runner.run("ip", "-netns", here.netns, *route)
