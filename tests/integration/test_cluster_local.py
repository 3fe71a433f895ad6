"""A whole local cluster: what pods, policies, volumes and DNS do is what a real one does."""

import http.server
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cluster_rig
import httpx
import pytest
from cluster_rig import IMAGE, Rig, build_pod, eventually

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(bool(cluster_rig.why_not()), reason=cluster_rig.why_not()),
]

HTTPD = (
    "mkdir -p /tmp/www; hostname > /tmp/www/index.html; exec busybox httpd -f -p 8000 -h /tmp/www"
)
SLEEP = "exec busybox sleep 3600"


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    rig = Rig("citest")
    rig.run("down")
    rig.run("up")
    cluster_rig.build_image(tmp_path_factory.mktemp("image"))
    rig.run("load-image", IMAGE)
    rig.apply(build_pod("client", SLEEP), *web())
    rig.wait("condition=Ready", "pod/client", "pod/web-0", "pod/web-1")
    yield rig
    rig.run("down")


def web() -> list[dict[str, Any]]:
    labels = {"app": "web"}
    pod = build_pod("web", HTTPD)
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"clusterIP": "None", "selector": labels, "ports": [{"port": 8000}]},
        },
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "web-cluster"},
            "spec": {
                "type": "NodePort",
                "selector": labels,
                "ports": [{"port": 80, "targetPort": 8000, "nodePort": 30080}],
            },
        },
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "web"},
            "spec": {
                "serviceName": "web",
                "replicas": 2,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod["spec"]},
            },
        },
    ]


def fetch(rig: Rig, pod: str, host: str, port: int = 8000) -> str:
    """What a pod gets over HTTP from an address; empty when it gets nothing.

    With nc, since a static busybox can't look up names and its wget crashes over that.
    """
    request = f"printf 'GET / HTTP/1.0\\n\\n' | busybox nc -w 3 {host} {port}"
    return rig.shell(pod, request).stdout.rpartition("\n\n")[2].strip()


def resolve(rig: Rig, pod: str, name: str) -> str:
    """The address that a pod's DNS gives for a name, as soon as it has one."""
    found: list[str] = []

    def ask() -> bool:
        answer = rig.shell(pod, f"busybox nslookup -type=a {name}.default.svc.cluster.local").stdout
        lines = answer.partition("Name:")[2].splitlines()
        found.extend(line.split()[1] for line in lines if line.startswith("Address:"))
        return bool(found)

    assert eventually(ask, 20), f"{pod} finds no {name}"
    return found[0]


def both_answer(rig: Rig, pod: str, service: str) -> bool:
    """Whether a service's address leads to either pod behind it, as soon as it does."""
    return eventually(
        lambda: {fetch(rig, pod, service, 80) for _ in range(12)} == {"web-0", "web-1"}
    )


def test_pods_find_each_other_by_name(rig: Rig) -> None:
    address = resolve(rig, "client", "web-1.web")
    assert eventually(lambda: fetch(rig, "client", address) == "web-1", 20)
    service = resolve(rig, "client", "web-cluster")
    assert service.startswith("10.96.")
    assert both_answer(rig, "client", service)


def test_a_pod_reaches_itself_through_its_service(rig: Rig) -> None:
    service = resolve(rig, "web-0", "web-cluster")
    assert both_answer(rig, "web-0", service)


def test_the_host_reaches_a_node_port(rig: Rig) -> None:
    jsonpath = "-o=jsonpath={.items[0].status.addresses[0].address}"
    address = rig.kubectl("get", "nodes", jsonpath).stdout
    found = httpx.get(f"http://{address}:30080/", trust_env=False)
    assert found.text.strip() in {"web-0", "web-1"}


def test_pods_reach_nothing_outside(rig: Rig) -> None:
    jsonpath = "-o=jsonpath={.items[0].status.addresses[0].address}"
    node = rig.kubectl("get", "nodes", jsonpath).stdout
    host = f"{node.rpartition('.')[0]}.1"
    server = http.server.HTTPServer((host, 0), http.server.SimpleHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        found = rig.shell("client", f"busybox nc -w 3 {host} {server.server_port} < /bin/sh")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert found.returncode != 0
    assert "refused" in found.stderr
    assert rig.shell("client", "busybox ping -c 1 -W 2 192.0.2.77").returncode != 0
    unknown = rig.shell("client", "busybox nslookup outside.example")
    assert "NXDOMAIN" in unknown.stdout + unknown.stderr


def test_a_network_policy_blocks_whom_it_should(rig: Rig) -> None:
    rig.apply(
        build_pod("guarded", HTTPD),
        build_pod("friend", SLEEP),
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "guarded"},
            "spec": {
                "podSelector": {"matchLabels": {"app": "guarded"}},
                "ingress": [{"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}]}],
            },
        },
    )
    rig.wait("condition=Ready", "pod/guarded", "pod/friend")
    address = rig.kubectl("get", "pod", "guarded", "-o=jsonpath={.status.podIP}").stdout
    assert eventually(lambda: fetch(rig, "client", address) == "", 30)
    assert eventually(lambda: fetch(rig, "friend", address) == "guarded", 30)
    assert fetch(rig, "client", address) == ""

    rig.kubectl("delete", "networkpolicy", "guarded")
    assert eventually(lambda: fetch(rig, "client", address) == "guarded", 30)


def claim(name: str, storage_class: str | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Mi"}},
    }
    if storage_class:
        spec["storageClassName"] = storage_class
    metadata = {"name": name}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}


def writer(name: str, claim_name: str) -> dict[str, Any]:
    """A pod as the engines are: an unprivileged user, its group on the volume."""
    script = "busybox id -u > /data/file && busybox cat /data/file && " + SLEEP
    return build_pod(
        name,
        script,
        volumeMounts=[{"name": "data", "mountPath": "/data"}],
        volumes=[{"name": "data", "persistentVolumeClaim": {"claimName": claim_name}}],
        securityContext={"runAsUser": 65532, "runAsGroup": 65532, "fsGroup": 65532},
    )


@pytest.mark.parametrize("storage_class", [None, "standard-retain"])
def test_a_claim_gets_a_volume_that_the_pods_group_may_write(
    rig: Rig, storage_class: str | None
) -> None:
    name = storage_class or "default-class"
    rig.apply(claim(name, storage_class), writer(f"writer-{name}", name))
    rig.wait("condition=Ready", f"pod/writer-{name}")
    # A pod without a probe is Ready before its script has said anything.
    assert eventually(lambda: rig.kubectl("logs", f"writer-{name}").stdout.strip() == "65532")
    volume = rig.kubectl("get", "pvc", name, "-o=jsonpath={.spec.volumeName}").stdout
    folder = Path(rig.kubectl("get", "pv", volume, "-o=jsonpath={.spec.local.path}").stdout)
    assert (folder / "file").read_text() == "65532\n"

    rig.kubectl("delete", f"pod/writer-{name}", f"pvc/{name}")

    if storage_class:
        rig.wait("jsonpath={.status.phase}=Released", f"pv/{volume}", seconds=20)
        assert (folder / "file").exists()
        rig.kubectl("delete", f"pv/{volume}")
    else:
        assert eventually(lambda: rig.kubectl("get", f"pv/{volume}", check=False).returncode != 0)
        assert not folder.exists()


def test_an_image_is_usable_as_a_volume(rig: Rig) -> None:
    rig.apply(
        build_pod(
            "reader",
            f"busybox ls /models/bin && {SLEEP}",
            volumeMounts=[{"name": "models", "mountPath": "/models"}],
            volumes=[{"name": "models", "image": {"reference": IMAGE}}],
        )
    )
    rig.wait("condition=Ready", "pod/reader")
    assert eventually(lambda: rig.kubectl("logs", "reader").stdout.split() == ["busybox", "sh"])


def test_port_forward_reaches_a_pod(rig: Rig) -> None:
    command = [*rig.kubectl_command(), "port-forward", "pod/web-0", ":8000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as forward:
        assert forward.stdout is not None
        port = forward.stdout.readline().split("->")[0].rpartition(":")[2].strip()
        found = httpx.get(f"http://127.0.0.1:{port}/", trust_env=False)
        forward.terminate()
    assert found.text.strip() == "web-0"


def test_up_and_load_image_find_their_work_done(rig: Rig) -> None:
    before = rig.run("status").stdout
    rig.run("up")
    assert rig.run("status").stdout == before
    assert "already on citest-node1" in rig.run("load-image", IMAGE).stderr


def test_a_second_node_joins_and_its_pods_talk_to_the_first(rig: Rig) -> None:
    rig.run("up", "--nodes=2")
    rig.run("load-image", IMAGE)
    rig.apply(build_pod("far", HTTPD, nodeName="citest-node2"))
    rig.wait("condition=Ready", "pod/far")
    address = rig.kubectl("get", "pod", "far", "-o=jsonpath={.status.podIP}").stdout
    assert address.startswith("10.244.2.")
    assert eventually(lambda: fetch(rig, "client", address) == "far", 20)
    service = resolve(rig, "far", "web-cluster")
    assert both_answer(rig, "far", service)
