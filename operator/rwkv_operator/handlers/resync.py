"""The slow loop: a full list now and then, so that a lost event isn't lost for long.

One loop for the whole operator; kopf's timers would put a finalizer on every deployment.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rwkv_operator import errors
from rwkv_operator.cluster import gather
from rwkv_operator.cluster.client import Cluster
from rwkv_operator.handlers.contact import Contact
from rwkv_operator.handlers.deployment import wants_look
from rwkv_operator.handlers.queue import WorkQueue
from rwkv_operator.metrics import Metrics
from rwkv_operator.reconcile import is_ready

_log = logging.getLogger(__name__)

LIST_SECONDS: Final = 30.0


async def resync(
    cluster: Cluster,
    namespace: str | None,
    queue: WorkQueue,
    contact: Contact,
    metrics: Metrics,
) -> None:
    """List all deployments; for ever."""
    while True:
        try:
            found = await asyncio.to_thread(gather.gather_deployments, cluster, namespace)
        except errors.ClusterError as error:
            _log.warning("RWKVDeployments can't be listed: %s", error)
        else:
            contact.heard()
            contact.listed = True
            enqueue_missed(found, queue)
            count(found, metrics)
        await asyncio.sleep(LIST_SECONDS)


def enqueue_missed(found: Iterable[Mapping[str, Any]], queue: WorkQueue) -> None:
    """Look at every deployment whose spec is newer than its status or that nobody looks after."""
    for obj in found:
        key = obj["metadata"]["namespace"], obj["metadata"]["name"]
        if wants_look("MODIFIED", obj) or not queue.knows(key):
            queue.add(key)


def count(found: Iterable[Mapping[str, Any]], metrics: Metrics) -> None:
    """Set the gauges of ready and other deployments."""
    ready = [is_ready(obj) for obj in found]
    metrics.deployments.labels("true").set(ready.count(True))
    metrics.deployments.labels("false").set(ready.count(False))
