"""The local mode: every program of the cluster runs here, in namespaces of its own.

Order matters in both directions; this file has that order and nothing else.
"""

import shutil
import sys
from pathlib import Path

import httpx

from rwkv_cluster import (
    addons,
    build,
    cgroups,
    cleanup,
    controlplane,
    credentials,
    errors,
    images,
    kube,
    layout,
    netns,
    node,
    nodefiles,
    process,
    state,
    tools,
)
from rwkv_cluster.controlplane import ControlPlane
from rwkv_cluster.layout import Layout, Node
from rwkv_cluster.process import Component, Runner
from rwkv_cluster.progress import Progress
from rwkv_cluster.state import State

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
ADDONS = ("coredns", "provisioner")
READY_SECONDS = 90


class LocalCluster:
    """A cluster made of processes of this machine.

    Args:
        name: Its name; clusters of different names run side by side.
        progress: Told of every step.
    """

    def __init__(self, name: str, progress: Progress) -> None:
        self._layout = Layout(name, build.cache_dir())
        self._progress = progress

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the cluster's admin."""
        return self._layout.kubeconfig

    def up(self, nodes: int) -> None:
        """Bring the cluster up with at least that many nodes; what runs already stays."""
        if not 1 <= nodes <= layout.MAX_NODES:
            raise errors.UsageError(f"--nodes {nodes}: wanted: 1 to {layout.MAX_NODES}")
        tools.require_node()
        binaries = build.ensure(build.ALL, self._progress)
        with process.hold(self._layout) as runner:
            current = state.read(self._layout)
            if current is None or not self._is_healthy(current):
                cleanup.clean(runner)
                self._announce()
                current = self._start_control_plane(runner, binaries)
            for number in range(current.nodes + 1, nodes + 1):
                current = self._start_node(runner, current, number)
            self._wait_for_dns(current)
        self._progress.say(f"cluster {self._layout.name} is up, {current.nodes} node(s)")

    def down(self, *, forget: bool = False) -> None:
        """Remove the cluster; unless told otherwise its logs and image store stay in the cache."""
        tools.require_node()
        with process.hold(self._layout) as runner, self._progress.step("down"):
            cleanup.clean(runner)
            if forget:
                shutil.rmtree(self._layout.files, ignore_errors=True)
            self._layout.lock.unlink(missing_ok=True)
        cleanup.remove_if_empty(layout.RUN_ROOT)

    def status(self) -> list[str]:
        """Return lines that tell how it is; empty when there is no cluster."""
        current, running = state.read(self._layout), process.list_running(self._layout)
        if current is None and not running:
            return []
        lines = [f"{name}: running, process {pid}" for name, pid in sorted(running.items())]
        missing = sorted(list_expected(current) - set(running)) if current else []
        lines += [
            f"{name}: NOT running ({process.log_file(self._layout, name)})" for name in missing
        ]
        if current is None or current.nodes == 0:
            lines.append("the bring-up did not finish: run `up` or `down`")
        else:
            lines.append(f"kubeconfig: {self.kubeconfig}")
        return lines

    def load_image(self, local: str) -> None:
        """Copy an image from buildah's store to every node that lacks it."""
        reference, source_id = images.normalize(local), images.read_built_id(local)
        with process.hold(self._layout) as runner:
            current = state.read(self._layout)
            if current is None or not current.nodes:
                raise errors.UsageError(f"cluster {self._layout.name}: not up; run `up` first")
            for each in self._nodes(current):
                store = images.Store(runner, each.socket, Path(current.binaries))
                if store.has_source(reference, source_id):
                    self._progress.say(f"{reference}: already on {each.name}")
                    continue
                with self._progress.step(f"import {reference} to {each.name}"):
                    store.load_built(reference, source_id)

    def _announce(self) -> None:
        cluster = self._layout
        self._progress.say(
            f"cluster {cluster.name}: makes network namespaces and a link named {cluster.link}, "
            f"control group {cluster.cgroup}, {cluster.run} and {cluster.files}; "
            "`down` removes all but logs and images"
        )

    def _nodes(self, current: State) -> list[Node]:
        return [self._layout.node(n, current.subnet) for n in range(1, current.nodes + 1)]

    def _is_healthy(self, current: State) -> bool:
        if current.nodes == 0 or list_expected(current) - set(process.list_running(self._layout)):
            return False
        client = self._client(current)
        try:
            return client.is_ready()
        finally:
            client.close()

    def _client(self, current: State) -> kube.Client:
        return kube.Client(self._plane(current).url, self._layout.pki)

    def _plane(self, current: State) -> ControlPlane:
        first = self._layout.node(1, current.subnet)
        return ControlPlane(self._layout.pki, self._layout.live, first.address, layout.API_PORT)

    def _start_control_plane(self, runner: Runner, binaries: Path) -> State:
        current = State(netns.choose_subnet(runner), str(binaries))
        first = self._layout.node(1, current.subnet)
        plane = self._plane(current)
        for folder in (self._layout.run / "pids", self._layout.logs, self._layout.live):
            folder.mkdir(parents=True, exist_ok=True)
        state.write(self._layout, current)
        with self._progress.step("namespaces and keys"):
            cgroups.create(f"{self._layout.cgroup}/system")
            node.create_namespaces(runner, first, binaries)
            credentials.write_control_plane(self._layout, first, plane.url)
        with self._progress.step("API server"):
            enter = node.enter_command(first)
            self._spawn(runner, "etcd", binaries, controlplane.build_etcd_args(plane), enter)
            args = controlplane.build_node_apiserver_args(plane)
            self._spawn(runner, "kube-apiserver", binaries, args, enter)
            # The runtime needs nothing of the API server and comes up meanwhile.
            node.start_runtime(runner, first, binaries)
            self._wait_for_api(current)
        self._start_controllers(runner, current, plane, enter)
        return current

    def _start_controllers(
        self, runner: Runner, current: State, plane: ControlPlane, enter: tuple[str, ...]
    ) -> None:
        binaries, run = Path(current.binaries), self._layout.run
        for name, build_args in (
            ("kube-controller-manager", controlplane.build_node_controller_args),
            ("kube-scheduler", controlplane.build_scheduler_args),
        ):
            self._spawn(
                runner, name, binaries, build_args(plane, run / f"{name}.kubeconfig"), enter
            )
        corefile = run / "Corefile"
        corefile.write_text(nodefiles.build_corefile(self.kubeconfig))
        self._spawn(runner, "coredns", binaries, [f"-conf={corefile}"], enter)
        volumes = self._layout.live / "volumes"
        module = [sys.executable, "-m", "rwkv_cluster.provisioner", plane.url]
        source = {"PYTHONPATH": str(build.SOURCE_DIR), "PATH": process.PATH}
        command = [*module, str(self._layout.pki), str(volumes)]
        runner.spawn(Component("provisioner", command, enter, source))

    def _start_node(self, runner: Runner, current: State, number: int) -> State:
        here, binaries = self._layout.node(number, current.subnet), Path(current.binaries)
        with self._progress.step(f"{here.name} Ready"):
            if number > 1:
                node.create_namespaces(runner, here, binaries)
                node.start_runtime(runner, here, binaries)
            credentials.write_node(here, self._plane(current).url)
            node.start_kubelet(runner, here, binaries)
            self._wait_for_node(runner, current, here)
        current = current.with_nodes(number)
        state.write(self._layout, current)
        return current

    def _spawn(
        self, runner: Runner, name: str, binaries: Path, args: list[str], enter: tuple[str, ...]
    ) -> None:
        environment = {"PATH": process.PATH}
        runner.spawn(Component(name, [str(binaries / name), *args], enter, environment))

    def _wait_for_api(self, current: State) -> None:
        client = self._client(current)
        try:
            log = process.log_file(self._layout, "kube-apiserver")
            kube.wait_until(client.is_ready, f"API server ready (log: {log})", READY_SECONDS)
            for path, obj in addons.build_addons(self._layout.node(1, current.subnet).address):
                client.apply(path, obj)
        finally:
            client.close()

    def _wait_for_node(self, runner: Runner, current: State, here: Node) -> None:
        path, client = f"/api/v1/nodes/{here.name}", self._client(current)
        try:
            log = process.log_file(self._layout, f"kubelet{here.number}")
            what = f"{here.name} registered (log: {log})"
            kube.wait_until(lambda: client.get(path) is not None, what, READY_SECONDS)
            cidr = {"podCIDR": here.pod_cidr, "podCIDRs": [here.pod_cidr]}
            client.patch(path, {"spec": cidr})
            node.start_network(runner, here, Path(current.binaries))
            what = f"{here.name} Ready (log: {log})"
            kube.wait_until(lambda: is_node_ready(client.get(path)), what, READY_SECONDS)
            # Without it the first pod would be refused.
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            what = "default ServiceAccount"
            kube.wait_until(lambda: client.get(account) is not None, what, READY_SECONDS)
        finally:
            client.close()

    def _wait_for_dns(self, current: State) -> None:
        """CoreDNS answers `ready` once it has seen every Service and EndpointSlice."""
        first = self._layout.node(1, current.subnet)
        url = f"http://{first.address}:{nodefiles.DNS_READY_PORT}/ready"

        def is_ready() -> bool:
            try:
                return httpx.get(url, trust_env=False, timeout=2).status_code == 200
            except httpx.HTTPError:
                return False

        log = process.log_file(self._layout, "coredns")
        with self._progress.step("DNS ready"):
            kube.wait_until(is_ready, f"CoreDNS ready (log: {log})", READY_SECONDS)


def is_node_ready(obj: kube.Object | None) -> bool:
    """Whether a Node object says that it is Ready."""
    conditions = (obj or {}).get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def list_expected(current: State) -> set[str]:
    """Names of the components that a cluster with this record has."""
    nodes = [node.list_components(number) for number in range(1, current.nodes + 1)]
    return set(CONTROL_PLANE).union(ADDONS, *nodes)
