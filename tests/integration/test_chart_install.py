"""The chart on a real API server: it accepts what is installed, and what is kept stays."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chart import CHART, find_helm

from rwkv_cluster.apiserver import ApiServer

pytestmark = pytest.mark.apiserver

NAMESPACE = "chart-test"
RELEASE = "rwkv-operator"
PLACE = ("--namespace", NAMESPACE)


class Cluster:
    """kubectl and helm on the fixture's API server; there is no node, so nobody waits for pods."""

    def __init__(self, server: ApiServer) -> None:
        self._environ = os.environ | {"KUBECONFIG": str(server.kubeconfig)}
        self._kubectl = str(server.kubectl)

    def helm(self, *args: str) -> str:
        command = [find_helm().program, *args, *PLACE]
        done = subprocess.run(command, capture_output=True, text=True, env=self._environ)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def install(self, *settings: str, chart: Path = CHART) -> None:
        flags = [flag for value in settings for flag in ("--set", value)]
        common = ["--install", "--create-namespace", "--wait=hookOnly"]
        self.helm("upgrade", RELEASE, str(chart), *common, *flags)

    def names(self, kinds: str, *place: str) -> set[str]:
        command = [self._kubectl, "get", kinds, *place, "-o", "name", "--ignore-not-found"]
        done = subprocess.run(command, capture_output=True, text=True, env=self._environ)
        assert done.returncode == 0, done.stderr
        return set(done.stdout.split())

    def get(self, *args: str) -> dict[str, Any]:
        command = [self._kubectl, "get", *args, "-o", "json"]
        done = subprocess.run(
            command, capture_output=True, text=True, env=self._environ, check=True
        )
        found: dict[str, Any] = json.loads(done.stdout)
        return found


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """An API server of this module's own: Helm has to be the one that brings the CRDs."""
    with ApiServer() as server:
        yield Cluster(server)


OBJECTS = "deployments,services,configmaps,serviceaccounts,networkpolicies,roles,rolebindings"


def test_install_upgrade_and_uninstall(cluster: Cluster) -> None:
    cluster.install()
    own = cluster.names(OBJECTS, *PLACE)
    assert "deployment.apps/rwkv-operator" in own
    assert "configmap/rwkv-operator-catalogue" in own
    crds = cluster.names("crds")
    assert len({crd for crd in crds if "serving.rwkv.dev" in crd}) == 2

    cluster.install("operator.workers=8", "images.server=example.test/engine:v7")
    deployment = cluster.get("deployment", "rwkv-operator", *PLACE)
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"name": "RWKV_WORKERS", "value": "8"} in container["env"]
    catalogue = cluster.get("configmap", "rwkv-operator-catalogue", *PLACE)
    assert "example.test/engine:v7" in catalogue["data"]["cpu.yaml"]

    cluster.helm("uninstall", RELEASE)
    assert cluster.names("crds") == crds
    left = cluster.names(OBJECTS, *PLACE) - {"serviceaccount/default", "configmap/kube-root-ca.crt"}
    assert left == set()
    assert not [
        name for name in cluster.names("clusterroles,clusterrolebindings") if "rwkv" in name
    ]


def test_an_upgrade_upgrades_the_crds(cluster: Cluster, tmp_path: Path) -> None:
    older = tmp_path / "rwkv-operator"
    shutil.copytree(CHART, older)
    crd = older / "files" / "crds" / "rwkvhardwarestacks.yaml"
    column = "        - {name: VENDOR, type: string, jsonPath: .spec.vendor}\n"
    assert column in crd.read_text()
    crd.write_text(crd.read_text().replace(column, ""))

    def columns() -> list[str]:
        found = cluster.get("crd", "rwkvhardwarestacks.serving.rwkv.dev")
        listed = found["spec"]["versions"][0]["additionalPrinterColumns"]
        return [column["name"] for column in listed]

    cluster.install(chart=older)
    assert "VENDOR" not in columns()
    cluster.install()
    assert "VENDOR" in columns()
