"""One pass over all hardware stacks: read them and the nodes, write the status that differs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from rwkv_operator import errors, names
from rwkv_operator.api.stack import parse_stack
from rwkv_operator.cluster.client import Cluster
from rwkv_operator.cluster.nodes import Nodes
from rwkv_operator.decide.stacks import build_stack_status

_log = logging.getLogger(__name__)


class StackKeeper:
    """Keeps the status of the stacks; calls block, they are meant for threads."""

    def __init__(self, cluster: Cluster, nodes: Nodes, now: Callable[[], str]) -> None:
        """Keep the parts; `now` is the wall clock in Kubernetes' format."""
        self._cluster = cluster
        self._nodes = nodes
        self._now = now

    def keep(self) -> None:
        """One pass.

        Raises:
            ClusterError: the API server couldn't be reached.
        """
        nodes = self._nodes.all()
        for obj in self._cluster.find(names.STACK_KIND, None):
            try:
                stack = parse_stack(obj)
            except errors.InvalidSpec as error:
                # Deployments that name it say so.
                _log.warning("RWKVHardwareStack %s: %s", obj["metadata"]["name"], error)
                continue
            stored = obj.get("status") or {}
            wanted = build_stack_status(stack, nodes, stored, self._now())
            if wanted != stored:
                self._write(obj, wanted)

    def _write(self, obj: Mapping[str, Any], wanted: dict[str, Any]) -> None:
        patch = {
            "apiVersion": names.API_VERSION,
            "kind": names.STACK_KIND,
            "metadata": {"name": obj["metadata"]["name"]},
            "status": wanted,
        }
        try:
            self._cluster.apply_status(patch, obj["metadata"]["uid"])
        except errors.ClusterError as error:
            if error.status not in (404, 409):
                raise
            # Deleted, or deleted and made anew, since it was read: its own event follows.
