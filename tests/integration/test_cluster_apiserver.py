"""The API server alone: what its users build on, and that it never outlives them."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rwkv_cluster import apiserver as apiserver_module
from rwkv_cluster.apiserver import ApiServer

pytestmark = pytest.mark.apiserver


def kubectl(
    server: ApiServer, *args: str, kubeconfig: Path | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    command = [str(server.kubectl), f"--kubeconfig={kubeconfig or server.kubeconfig}", *args]
    environment = {**os.environ, "KUBECACHEDIR": str(server.folder / "kubectl-cache")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert not check or done.returncode == 0, done.stderr
    return done


def eventually(check: Callable[[], bool], seconds: float = 30) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if check():
            return True
        time.sleep(0.1)
    return False


@pytest.fixture
def namespace(apiserver: ApiServer) -> Iterator[str]:
    name = f"t{os.getpid()}-{time.monotonic_ns()}"
    kubectl(apiserver, "create", "namespace", name)
    yield name
    kubectl(apiserver, "delete", "namespace", name, "--wait=false")


def test_an_owned_object_goes_with_its_owner(apiserver: ApiServer, namespace: str) -> None:
    at = f"--namespace={namespace}"
    kubectl(apiserver, at, "create", "configmap", "owner")
    uid = kubectl(apiserver, at, "get", "configmap", "owner", "-o=jsonpath={.metadata.uid}").stdout
    kubectl(apiserver, at, "create", "configmap", "owned")
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid}
    patch = json.dumps({"metadata": {"ownerReferences": [owner]}})
    kubectl(apiserver, at, "patch", "configmap", "owned", f"--patch={patch}")

    kubectl(apiserver, at, "delete", "configmap", "owner")

    def gone() -> bool:
        return kubectl(apiserver, at, "get", "configmap", "owned", check=False).returncode != 0

    assert eventually(gone)


def test_another_user_may_only_what_rbac_grants(apiserver: ApiServer, namespace: str) -> None:
    bob = apiserver.user("bob", ("developers",))
    denied = kubectl(apiserver, "get", "namespaces", kubeconfig=bob, check=False)
    assert denied.returncode != 0
    assert 'User "bob" cannot list' in denied.stderr

    granted = ("--clusterrole=view", "--group=developers", f"--namespace={namespace}")
    kubectl(apiserver, "create", "rolebinding", "developers", *granted)

    def allowed() -> bool:
        args = ("get", "configmaps", f"--namespace={namespace}")
        return kubectl(apiserver, *args, kubeconfig=bob, check=False).returncode == 0

    assert eventually(allowed)


def test_workload_controllers_make_pods_that_stay_pending(
    apiserver_with_workloads: ApiServer,
) -> None:
    server = apiserver_with_workloads
    kubectl(server, "create", "deployment", "web", "--image=example.invalid/web", "--replicas=2")

    def phases() -> str:
        return kubectl(server, "get", "pods", "-l=app=web", "-o=jsonpath={..phase}").stdout

    assert eventually(lambda: phases() == "Pending Pending")
    kubectl(server, "delete", "deployment", "web")


def test_it_leaves_nothing_behind() -> None:
    with ApiServer() as server:
        folder = server.folder
        assert processes_of(folder)
    assert not folder.exists()
    assert not processes_of(folder)


def test_it_dies_with_a_caller_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import time; from rwkv_cluster.apiserver import ApiServer\n"
        "with ApiServer() as server: print(server.folder, flush=True); time.sleep(600)"
    )
    source = Path(apiserver_module.__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(source), "TMPDIR": str(tmp_path)}
    caller = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment
    )
    assert caller.stdout is not None
    folder = Path(caller.stdout.readline().strip())
    assert processes_of(folder)

    caller.send_signal(signal.SIGKILL)
    caller.wait()
    caller.stdout.close()

    assert eventually(lambda: not processes_of(folder), 10)


def processes_of(folder: Path) -> list[int]:
    """Processes that were started with a path in the folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if str(folder).encode() in entry.read_bytes():
                found.append(int(entry.parent.name))
        except (FileNotFoundError, ProcessLookupError):
            continue
    return found
