"""An operator process per module, on the API server with the workload controllers."""

from collections.abc import Iterator

import deployments
import node_objects
import operator_process
import pytest
from kube import Kube
from operator_process import OperatorProcess

from rwkv_cluster.apiserver import ApiServer


@pytest.fixture(scope="session")
def kube(apiserver_with_workloads: ApiServer) -> Kube:
    """The cluster as an admin sees it: the operator's role, the catalogue, a node for the cpu."""
    server = apiserver_with_workloads
    kube = Kube(str(server.kubectl), "helm", server.kubeconfig)
    operator_process.grant(kube)
    for stack in sorted((deployments.CRDS / "stacks").glob("*.yaml")):
        kube.apply(stack)
    kube.apply(deployments.cpu_stack_object())
    kube.apply(node_objects.bare())
    return kube


@pytest.fixture(scope="module")
def operator(
    kube: Kube, apiserver_with_workloads: ApiServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """The operator with the rights of its role, and no more."""
    kubeconfig = apiserver_with_workloads.user(operator_process.USER)
    log = tmp_path_factory.mktemp("operator") / "operator.log"
    with operator_process.running(kubeconfig, log) as process:
        yield process
        assert process.end() == 0
    assert not complaints(log.read_text())


def complaints(log: str) -> list[str]:
    """Lines that tell of a defect, or of a right that the role lacks.

    Nothing can be made in a namespace that is going away, which is how every test ends.
    """
    return [
        line
        for line in log.splitlines()
        if ("Traceback" in line or "orbidden" in line) and "being terminated" not in line
    ]


@pytest.fixture
def namespace(kube: Kube, request: pytest.FixtureRequest) -> Iterator[str]:
    """A namespace of the test's own."""
    name = f"t{abs(hash(request.node.nodeid)) % 10**8}"
    kube.run("create", "namespace", name)
    yield name
    kube.run("delete", "namespace", name, "--wait=false")
