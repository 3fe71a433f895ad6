"""Names, paths and addresses of a cluster, all derived from its name and subnet. Pure.

Because everything follows from the name, `down` finds what a killed bring-up left without any
record of it.
"""

import re
import zlib
from dataclasses import dataclass
from pathlib import Path

from rwkv_cluster import errors

# A network link's name has at most 15 characters, five of them are "rwkv-".
NAME = re.compile(r"[a-z][a-z0-9]{0,9}")
RUN_ROOT = Path("/run/rwkv-cluster")
DEFAULT_NAME = "rwkv"
MAX_NODES = 4
API_PORT = 6443


@dataclass(frozen=True)
class Layout:
    """Where one cluster keeps what.

    Args:
        name: The cluster's name.
        cache: The project's cache folder.
    """

    name: str
    cache: Path

    def __post_init__(self) -> None:
        if not NAME.fullmatch(self.name):
            wanted = "a small letter, then up to 9 small letters or digits"
            raise errors.UsageError(f"--name {self.name}: no good as a name; wanted: {wanted}")

    @property
    def run(self) -> Path:
        """Sockets, keys, process ids: gone after `down` and after a reboot."""
        return RUN_ROOT / self.name

    @property
    def lock(self) -> Path:
        """Held by whoever changes the cluster."""
        return RUN_ROOT / f"{self.name}.lock"

    @property
    def files(self) -> Path:
        """What stays after `down`: logs and the image stores."""
        return self.cache / "clusters" / self.name

    @property
    def live(self) -> Path:
        """Large things that go with `down`: etcd's data, kubelets' folders, volumes."""
        return self.files / "live"

    @property
    def logs(self) -> Path:
        """Logs of the last run."""
        return self.files / "logs"

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.run / "pki"

    @property
    def kubeconfig(self) -> Path:
        """The admin's kubeconfig."""
        return self.run / "admin.kubeconfig"

    @property
    def link(self) -> str:
        """The host's end of the only cable into the cluster."""
        return f"rwkv-{self.name}"

    @property
    def cgroup(self) -> str:
        """Control group of every process of the cluster, under each hierarchy's root."""
        return f"rwkv-{self.name}"

    def node(self, number: int, subnet: str) -> "Node":
        """One node of the cluster; number 1 also has the control plane."""
        return Node(self, number, subnet)


@dataclass(frozen=True)
class Node:
    """Where one node keeps what.

    Args:
        cluster: Its cluster's layout.
        number: 1, 2, …
        subnet: First three bytes of the cluster's node network, such as "10.213.0".
    """

    cluster: Layout
    number: int
    subnet: str

    @property
    def name(self) -> str:
        """The node's name in Kubernetes."""
        return f"{self.cluster.name}-node{self.number}"

    @property
    def netns(self) -> str:
        """Its network namespace."""
        return build_netns_name(self.cluster.name, self.number)

    @property
    def address(self) -> str:
        """Its address on the node network."""
        return f"{self.subnet}.{self.number + 1}"

    @property
    def pod_cidr(self) -> str:
        """The range its pods get addresses from."""
        return f"10.244.{self.number}.0/24"

    @property
    def run(self) -> Path:
        """Its sockets and rendered configuration."""
        return self.cluster.run / f"node{self.number}"

    @property
    def live(self) -> Path:
        """Its kubelet's folders."""
        return self.cluster.live / f"node{self.number}"

    @property
    def store(self) -> Path:
        """containerd's root: images survive `down`."""
        return self.cluster.files / f"node{self.number}" / "containerd"

    @property
    def socket(self) -> Path:
        """containerd's socket."""
        return self.run / "containerd.sock"

    @property
    def cgroup(self) -> str:
        """Control group of its pods."""
        return f"{self.cluster.cgroup}/node{self.number}"


def build_netns_name(cluster: str, number: int) -> str:
    """Name of a node's network namespace; names of clusters have no dash, so it can't clash."""
    return f"rwkv-{cluster}" if number == 1 else f"rwkv-{cluster}-{number}"


def host_address(subnet: str) -> str:
    """The host's address on the node network."""
    return f"{subnet}.1"


def choose_subnet(name: str, taken: list[str]) -> str:
    """Return a free `10.213.<n>`.

    Args:
        name: The cluster's; different names start looking at different places, so that two
            bring-ups at the same moment don't meet.
        taken: Destinations of the host's routes.
    """
    start = zlib.crc32(name.encode())
    for offset in range(256):
        subnet = f"10.213.{(start + offset) % 256}"
        if not any(destination.startswith(f"{subnet}.") for destination in taken):
            return subnet
    raise errors.UsageError("no free subnet under 10.213.0.0/16; run `down` for a cluster")
