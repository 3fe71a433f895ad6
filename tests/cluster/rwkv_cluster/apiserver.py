"""A real API server without a node: etcd and kube-apiserver on loopback, up in about 3 s.

For tests that need true schemas, CEL, defaulting and server-side apply, but no pod. Needs no root
and no namespace; everything it makes is in one temporary folder and dies with the caller, to the
kernel the thread that entered the context: let that be one that lives as long.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType

from rwkv_cluster import build, controlplane, errors, kube, kubeconfig, pki, ports, tools
from rwkv_cluster.progress import Progress

ATTEMPTS = 3
TAIL_LINES = 12


class ApiServer:
    """Context manager: `with ApiServer() as server:` and use `server.kubeconfig`.

    Args:
        controllers: Also run the garbage collector, the namespace and the ServiceAccount
            controllers, so that owner references are followed and namespaces end.
        workloads: Also run the Deployment, ReplicaSet, StatefulSet, EndpointSlice and disruption
            controllers. Pods are created but stay Pending: there is no node.
        manifests: Files applied before the controllers start. The garbage collector learns of new
            kinds every 30 s only, so CRDs whose objects own others belong here.
        progress: Told of builds and start; quiet by default.
        timeout_seconds: How long to wait for each component.
    """

    def __init__(
        self,
        *,
        controllers: bool = False,
        workloads: bool = False,
        manifests: Sequence[Path] = (),
        progress: Progress | None = None,
        timeout_seconds: float = 60,
    ) -> None:
        self._controllers = controllers or workloads
        self._workloads = workloads
        self._manifests = tuple(manifests)
        self._progress = progress or Progress(None)
        self._timeout = timeout_seconds
        self._processes: list[subprocess.Popen[bytes]] = []
        self._folder: Path | None = None
        self._authority = pki.create_authority("rwkv-apiserver")
        self.url = ""
        self.bin_dir = Path()

    def __enter__(self) -> "ApiServer":
        self.bin_dir = build.ensure(["kube"], self._progress)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                with self._progress.step("API server"):
                    self._start()
                return self
            except errors.StartFailed as failure:
                self._stop()
                # Ports were free a moment ago; another process may have been quicker.
                if "address already in use" not in str(failure) or attempt == ATTEMPTS:
                    raise
            except BaseException:
                self._stop()
                raise
        raise AssertionError("unreachable")

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    @property
    def folder(self) -> Path:
        """The temporary folder with logs, certificates and data."""
        if self._folder is None:
            raise errors.UsageError("ApiServer: not started; use it in a with block")
        return self._folder

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of a cluster admin."""
        return self.folder / "admin.kubeconfig"

    @property
    def kubectl(self) -> Path:
        """The kubectl that fits this server."""
        return self.bin_dir / "kubectl"

    def user(self, name: str, groups: Iterable[str] = ()) -> Path:
        """Return the kubeconfig of another user, who may do what RBAC grants and no more."""
        target = self.folder / f"user-{name.replace(':', '_').replace('/', '_')}.kubeconfig"
        client = self._authority.issue_client(name, groups)
        text = kubeconfig.build_kubeconfig("rwkv-apiserver", self.url, self._authority.pem, client)
        pki.write_private(target, text.encode())
        return target

    def log(self, component: str) -> str:
        """Return what a component has logged so far."""
        return (self.folder / f"{component}.log").read_text(errors="replace")

    def _start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="rwkv-apiserver-"))
        plane = controlplane.ControlPlane(
            self._folder, self._folder, "127.0.0.1", *ports.free_ports(3)
        )
        self.url = plane.url
        self._write_pki()
        self._run("etcd", controlplane.build_etcd_args(plane))
        args = controlplane.build_bare_apiserver_args(plane, service_accounts=self._controllers)
        server = self._run("kube-apiserver", args)
        client = kube.Client(self.url, self._folder)
        try:
            self._wait(client.is_ready, server, "kube-apiserver")
        finally:
            client.close()
        for manifest in self._manifests:
            self._apply(manifest)
        if self._controllers:
            args = controlplane.build_bare_controller_args(
                plane, self.kubeconfig, workloads=self._workloads
            )
            self._run("kube-controller-manager", args)

    def _write_pki(self) -> None:
        folder = self.folder
        (folder / "ca.crt").write_bytes(self._authority.pem)
        hosts = ("localhost", "kubernetes.default.svc", "127.0.0.1", "10.96.0.1")
        self._authority.issue_server("kube-apiserver", hosts).write(folder, "apiserver")
        admin = self._authority.issue_client("admin", ("system:masters",))
        admin.write(folder, "admin")
        text = kubeconfig.build_kubeconfig("rwkv-apiserver", self.url, self._authority.pem, admin)
        pki.write_private(self.kubeconfig, text.encode())
        pki.write_service_account_keys(folder)

    def _run(self, component: str, args: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / f"{component}.log").open("wb") as log:
            # The kernel ends it when the caller dies, even by SIGKILL.
            guard = [tools.find("setpriv"), "--pdeathsig", "KILL"]
            process = subprocess.Popen(
                [*guard, str(self.bin_dir / component), *args],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
            )
        self._processes.append(process)
        return process

    def _wait(
        self, check: Callable[[], bool], process: subprocess.Popen[bytes], component: str
    ) -> None:
        def ready_or_dead() -> bool:
            if any(running.poll() is not None for running in self._processes):
                raise errors.StartFailed(f"{component}: did not start:\n{self._tail()}")
            return check()

        kube.wait_until(ready_or_dead, f"{component} ready", self._timeout)

    def _tail(self) -> str:
        logs = sorted(self.folder.glob("*.log"))
        lines = [line for log in logs for line in self.log(log.stem).splitlines()[-TAIL_LINES:]]
        return "\n".join(lines)

    def _apply(self, manifest: Path) -> None:
        command = [str(self.kubectl), f"--kubeconfig={self.kubeconfig}", "apply", "--server-side"]
        done = subprocess.run(
            [*command, f"--filename={manifest}"],
            capture_output=True,
            text=True,
            # kubectl remembers an address's kinds for hours, and ports are used again.
            env={**os.environ, "KUBECACHEDIR": str(self.folder / "kubectl-cache")},
        )
        if done.returncode != 0:
            raise errors.ClusterError(f"{manifest}: not applied: {done.stderr.strip()}")

    def _stop(self) -> None:
        # Nothing in etcd is worth a clean end.
        for process in reversed(self._processes):
            process.kill()
        for process in self._processes:
            process.wait()
        self._processes.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None
