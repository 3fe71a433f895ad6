"""Objects that a bare cluster lacks: the DNS Service and the storage classes. Pure."""

from typing import Any

from rwkv_cluster.nodefiles import DNS_SERVICE_IP

PROVISIONER = "rwkv-cluster/hostpath"
STORAGE_CLASS = "standard"
STORAGE_CLASS_RETAIN = "standard-retain"
_DNS_PORTS = (("dns", "UDP"), ("dns-tcp", "TCP"))


def build_addons(dns_address: str) -> list[tuple[str, dict[str, Any]]]:
    """Return (path, object) pairs; `dns_address` is where CoreDNS listens."""
    classes = "/apis/storage.k8s.io/v1/storageclasses"
    slices = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices"
    return [
        (f"{classes}/{STORAGE_CLASS}", build_storage_class(STORAGE_CLASS, "Delete", default=True)),
        (
            f"{classes}/{STORAGE_CLASS_RETAIN}",
            build_storage_class(STORAGE_CLASS_RETAIN, "Retain", default=False),
        ),
        ("/api/v1/namespaces/kube-system/services/kube-dns", build_dns_service()),
        (f"{slices}/kube-dns", build_dns_endpoints(dns_address)),
    ]


def build_storage_class(name: str, reclaim: str, *, default: bool) -> dict[str, Any]:
    """A class of the hostPath provisioner; binding waits for the pod, as on real clouds."""
    annotation = {"storageclass.kubernetes.io/is-default-class": str(default).lower()}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": name, "annotations": annotation},
        "provisioner": PROVISIONER,
        "reclaimPolicy": reclaim,
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def build_dns_service() -> dict[str, Any]:
    """The Service that pods ask; without a selector, since CoreDNS isn't a pod here."""
    ports = [{"name": name, "protocol": protocol, "port": 53} for name, protocol in _DNS_PORTS]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": "kube-dns",
            "namespace": "kube-system",
            "labels": {"k8s-app": "kube-dns", "kubernetes.io/name": "CoreDNS"},
        },
        "spec": {"clusterIP": DNS_SERVICE_IP, "ports": ports},
    }


def build_dns_endpoints(address: str) -> dict[str, Any]:
    """Where the Service leads."""
    ports = [{"name": name, "protocol": protocol, "port": 53} for name, protocol in _DNS_PORTS]
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": "kube-dns",
            "namespace": "kube-system",
            "labels": {"kubernetes.io/service-name": "kube-dns"},
        },
        "addressType": "IPv4",
        "ports": ports,
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}}],
    }
