"""What the operator costs: from apply to children, at rest, at a restart, in memory.

A real API server without a node; the operator is a process of its own with the rights of its
role. Each run has both anew. Latency is from the create call's answer to the moment at which a
watch shows the last child. The peer is the same manifests applied by a bare loop with the same
client in the same run: what the API server itself takes.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("operator", "tests/cluster", "tests/support")]
sys.path.insert(0, str(Path(__file__).parent))

import deployments  # noqa: E402
import kubernetes  # noqa: E402
import node_objects  # noqa: E402
import operator_process  # noqa: E402
import results  # noqa: E402
import urllib3  # noqa: E402
from kube import Kube, wait_for  # noqa: E402
from operator_process import OperatorProcess  # noqa: E402

from rwkv_cluster.apiserver import ApiServer  # noqa: E402
from rwkv_operator import names  # noqa: E402
from rwkv_operator.api import spec  # noqa: E402
from rwkv_operator.cluster.client import Cluster  # noqa: E402
from rwkv_operator.manifests import children, secrets  # noqa: E402
from rwkv_operator.metrics import Metrics  # noqa: E402

NAMESPACE = "bench"
REST_SECONDS = 20.0
PEER = "the same manifests applied by a bare loop"


@dataclass
class Run:
    """What one run has measured."""

    single: list[float] = field(default_factory=list)
    direct: list[float] = field(default_factory=list)
    burst: list[float] = field(default_factory=list)
    rest_calls: float = 0.0
    restart_seconds: float = 0.0
    restart_calls: float = 0.0
    pass_cpu_ms: float = 0.0
    rss_mib: float = 0.0


class Bench:
    """One API server, one client, and a watch that notes when last children appear."""

    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.kube = Kube(str(server.kubectl), "helm", server.kubeconfig)
        self.api = kubernetes.config.new_client_from_config(str(server.kubeconfig))
        self.cluster = Cluster(self.api, Metrics())
        self.seen: dict[str, float] = {}
        operator_process.grant(self.kube)
        self.kube.run("create", "namespace", NAMESPACE)
        self.cluster.make(deployments.cpu_stack_object())
        self.kube.apply(node_objects.bare())

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Note the time of every new router Deployment, which is the last child of the order."""
        listed = kubernetes.client.AppsV1Api(self.api).list_namespaced_deployment
        watch = kubernetes.watch.Watch()

        def follow() -> None:
            # The server ends when the run does, and the watch with it.
            with contextlib.suppress(urllib3.exceptions.HTTPError):
                for event in watch.stream(listed, NAMESPACE):
                    labels = event["object"].metadata.labels
                    self.seen.setdefault(labels[names.LABEL_DEPLOYMENT], time.monotonic())

        threading.Thread(target=follow, daemon=True).start()
        yield
        watch.stop()

    def create(self, name: str) -> float:
        """Make a deployment; returns the time at which the API server has it."""
        obj = deployments.load(deployments.CRDS / "samples" / "tiny-recall.yaml")
        obj["metadata"] |= {"name": name, "namespace": NAMESPACE}
        assert self.cluster.create(obj)
        return time.monotonic()

    def children_seconds(self, made: dict[str, float]) -> list[float]:
        """Wait until all deployments have all children; the seconds that each took."""
        wait_for(lambda: made.keys() <= self.seen.keys(), "all children", timeout=300, every=0.01)
        return [self.seen[name] - at for name, at in made.items()]

    def apply_directly(self, name: str) -> float:
        """Seconds that the children of one deployment take without an operator."""
        raw = deployments.raw({"replicas": 2}, name)
        raw["metadata"] |= {"namespace": NAMESPACE}
        dep = spec.parse_deployment(raw)
        objects = [secrets.build_internal_secret(dep, "k"), secrets.build_api_key_secret(dep, "k")]
        manifests = children.build_children(dep, deployments.context())
        started = time.monotonic()
        for obj in objects:
            self.cluster.create(obj)
        for obj in manifests:
            self.cluster.make(obj)
        return time.monotonic() - started


def measure(count: int, singles: int) -> Run:
    """One run on a fresh API server."""
    run = Run()
    with tempfile.TemporaryDirectory() as folder, ApiServer(manifests=crds()) as server:
        bench = Bench(server)
        kubeconfig = server.user(operator_process.USER)
        log = Path(folder) / "operator.log"
        with operator_process.running(kubeconfig, log) as operator, bench.watching():
            for index in range(singles):
                name = f"single-{index}"
                run.single += bench.children_seconds({name: bench.create(name)})
                run.direct.append(bench.apply_directly(f"direct-{index}"))
                settle(operator)
            made = {f"burst-{index}": bench.create(f"burst-{index}") for index in range(count)}
            run.burst = bench.children_seconds(made)
            settle(operator)
            run.rss_mib = operator.rss_bytes() / 2**20
            run.rest_calls = at_rest(operator)
        with operator_process.running(kubeconfig, log) as operator:
            restart(operator, count + singles, run)
    return run


def crds() -> list[Path]:
    return sorted(deployments.CRDS.glob("*.yaml"))


def settle(operator: OperatorProcess) -> None:
    """Wait until nothing is queued and no pass has ended for a second."""
    while True:
        before = operator.passes()
        time.sleep(1.0)
        if operator.passes() == before and operator.metric("rwkv_operator_queued") == 0:
            return


def at_rest(operator: OperatorProcess) -> float:
    """Calls that may write, while nothing changes."""
    before = operator.mutating()
    time.sleep(REST_SECONDS)
    return operator.mutating() - before


def restart(operator: OperatorProcess, count: int, run: Run) -> None:
    """A new operator looks at every deployment once and has nothing to write."""
    started = time.monotonic()
    cpu = operator.metric("process_cpu_seconds_total")
    wait_for(lambda: operator.passes() >= count, "a look at all", timeout=300, every=0.02)
    run.restart_seconds = time.monotonic() - started
    run.pass_cpu_ms = (operator.metric("process_cpu_seconds_total") - cpu) / count * 1000
    run.restart_calls = operator.mutating()


def build_rows(runs: Sequence[Run], count: int) -> list[results.Row]:
    """Rows of the result file, from the medians over the runs."""
    singles = [statistics.median(run.single) for run in runs]
    direct = statistics.median(statistics.median(run.direct) for run in runs)
    return [
        row("children_p50/1", singles, "s", (PEER, direct)),
        row(f"children_p50/{count}", [quantile(run.burst, 0.5) for run in runs], "s"),
        row(f"children_p99/{count}", [quantile(run.burst, 0.99) for run in runs], "s"),
        row(f"mutating_at_rest/{count}", [run.rest_calls for run in runs], "calls"),
        row(f"mutating_at_restart/{count}", [run.restart_calls for run in runs], "calls"),
        row(f"restart_all_seen/{count}", [run.restart_seconds for run in runs], "s"),
        row(f"cpu_per_pass/{count}", [run.pass_cpu_ms for run in runs], "ms"),
        row(f"rss/{count}", [run.rss_mib for run in runs], "MiB"),
    ]


def row(
    name: str, values: Sequence[float], unit: str, peer: tuple[str, float] | None = None
) -> results.Row:
    """One row; less is better in all of them."""
    middle = statistics.median(values)
    spread = (max(values) - min(values)) / middle if middle else 0.0
    who, value = peer if peer else (None, None)
    return results.Row(name, middle, unit, "lower", len(values), spread, who, value)


def quantile(values: Sequence[float], share: float) -> float:
    """The value below which that share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def main() -> None:
    """Measure, write build/bench/operator.json, print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="deployments at once")
    parser.add_argument("--singles", type=int, default=10, help="deployments one by one")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    runs = [measure(args.count, args.singles) for _ in range(args.runs)]
    rows = build_rows(runs, args.count)
    for entry in rows:
        print(f"{entry.name:28} {entry.value:10.3f} {entry.unit}", file=sys.stderr)
    print(results.write("operator", rows, ["make bench-operator"]))


if __name__ == "__main__":
    main()
