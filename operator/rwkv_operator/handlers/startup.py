"""How the operator starts and stops: kopf's settings, the tasks, and their common end."""

from __future__ import annotations

import asyncio
import datetime
import logging
import random
import secrets
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, Final

import kopf

from rwkv_operator import errors, names
from rwkv_operator.cluster import catalogue
from rwkv_operator.cluster.client import Cluster, load_client
from rwkv_operator.cluster.nodes import Nodes
from rwkv_operator.cluster.pods import PodReports, build_http
from rwkv_operator.handlers import children, deployment, nodes, ops, stacks
from rwkv_operator.handlers.contact import Contact
from rwkv_operator.handlers.outcome import Retries, work
from rwkv_operator.handlers.queue import WorkQueue
from rwkv_operator.handlers.resync import resync
from rwkv_operator.metrics import Metrics
from rwkv_operator.reconcile import Reconciler
from rwkv_operator.reconcile_stacks import StackKeeper
from rwkv_operator.settings import Settings

_log = logging.getLogger(__name__)

_KIND_WAIT_SECONDS: Final = 2.0


async def run(settings: Settings) -> None:
    """Serve until told to stop."""
    metrics = Metrics()
    contact = Contact(time.monotonic)
    cluster = Cluster(load_client(connections=settings.workers + 2), metrics)
    with ops.serve(settings.http_port, contact, metrics, settings.silence_seconds):
        await wait_for_kinds(cluster, settings.watch_namespace)
        if settings.catalogue is not None:
            folder = Path(settings.catalogue)
            await asyncio.to_thread(catalogue.apply_catalogue, cluster, folder, now())
        async with build_http() as http:
            reports = PodReports(http)
            known = Nodes(cluster, time.monotonic)
            reconciler = Reconciler(
                cluster, known, reports, settings, metrics, now, lambda: secrets.token_hex(24)
            )
            await _run_tasks(settings, metrics, contact, cluster, known, reconciler)


def now() -> str:
    """Wall clock in Kubernetes' format."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


async def wait_for_kinds(
    cluster: Cluster, namespace: str | None, pause: float = _KIND_WAIT_SECONDS
) -> None:
    """Wait until the API server answers and knows our kinds: kopf looks for them only once."""
    told = None
    while True:
        try:
            await asyncio.to_thread(cluster.find, names.STACK_KIND, None)
            await asyncio.to_thread(cluster.find, names.DEPLOYMENT_KIND, namespace)
            return
        except errors.ClusterError as error:
            if str(error) != told:
                told = str(error)
                _log.warning("waiting for the CRDs of %s: %s", names.GROUP, told)
        await asyncio.sleep(pause)


def build_kopf_settings() -> kopf.OperatorSettings:
    """Kopf as a mere watcher: it writes nothing to any object."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.peering.standalone = True
    settings.scanning.disabled = True
    # No handler of ours makes kopf use these; if one ever did, it must not be kopf's own names.
    settings.persistence.finalizer = f"{names.GROUP}/finalizer"
    settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=names.GROUP)
    settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=names.GROUP)
    # A watch that the network has swallowed must not look like a quiet one.
    settings.watching.server_timeout = 240
    settings.watching.client_timeout = 300
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = 70
    settings.networking.request_timeout = 30
    settings.networking.connect_timeout = 10
    settings.queueing.idle_timeout = 1
    settings.process.ultimate_exiting_timeout = 20
    return settings


async def _run_tasks(
    settings: Settings,
    metrics: Metrics,
    contact: Contact,
    cluster: Cluster,
    known: Nodes,
    reconciler: Reconciler,
) -> None:
    queue = WorkQueue(metrics)
    retries = Retries()
    registry = kopf.OperatorRegistry()
    watcher = build_kopf_settings()
    namespace = settings.watch_namespace
    registry_login(registry)
    deployment.register(registry, queue, contact)
    children.register(registry, watcher, queue, contact)
    node_watch, stack_watch = nodes.NodeWatch(), stacks.StackWatch()
    nodes.register(registry, node_watch, contact)
    stacks.register(registry, cluster, namespace, queue, contact, stack_watch)
    keeper = StackKeeper(cluster, known, now)
    watch = kopf.operator(
        registry=registry,
        settings=watcher,
        clusterwide=namespace is None,
        namespaces=[namespace] if namespace else [],
        memo=None,
    )
    try:
        await _first_of(
            watch,
            resync(cluster, namespace, queue, contact, metrics),
            stacks.follow_nodes(node_watch, stack_watch, known, cluster, namespace, queue),
            # A namespaced operator may only read stacks.
            *([stacks.keep_stacks(stack_watch, keeper.keep)] if namespace is None else []),
            *(work(queue, reconciler.reconcile, retries, jitter) for _ in range(settings.workers)),
        )
    finally:
        queue.close()


def registry_login(registry: kopf.OperatorRegistry) -> None:
    """Let kopf log in as the operator's own client does."""
    kopf.on.login(registry=registry)(kopf.login_via_client)


def jitter(seconds: float) -> float:
    """Up to a tenth more, so that deployments that came together don't stay together."""
    return seconds * random.uniform(1.0, 1.1)


async def _first_of(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run all until the first ends; the rest is cancelled, its error is raised."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()
