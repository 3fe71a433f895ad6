"""The kinds of objects that the operator touches: where they are, and the rights that it needs.

The chart's Role is compared with `PERMISSIONS`. What isn't in this table can't be reached through
`cluster/client.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from rwkv_operator import names

_WATCH: Final = ("get", "list", "watch")
_OWN: Final = (*_WATCH, "create", "patch", "delete")


@dataclass(frozen=True)
class Kind:
    """One kind.

    Attributes:
        verbs: what the operator does with it.
        child: objects of it are made for a deployment and compared on every pass.
        optional: the cluster may not have it.
    """

    kind: str
    group: str
    version: str
    plural: str
    verbs: tuple[str, ...]
    child: bool = False
    namespaced: bool = True
    optional: bool = False

    @property
    def api_version(self) -> str:
        """Group and version as in a manifest."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def path(self, namespace: str | None, name: str | None = None) -> str:
        """URL path of one object, or of the collection.

        Args:
            namespace: None for the whole cluster.
            name: None for the collection.
        """
        root = f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"
        middle = f"/namespaces/{namespace}" if self.namespaced and namespace else ""
        return f"{root}{middle}/{self.plural}" + (f"/{name}" if name else "")


@dataclass(frozen=True)
class Permission:
    """One rule of a Role."""

    group: str
    resource: str
    verbs: tuple[str, ...]


KINDS: Final[Mapping[str, Kind]] = {
    kind.kind: kind
    for kind in (
        Kind(names.DEPLOYMENT_KIND, names.GROUP, names.VERSION, names.DEPLOYMENT_PLURAL, _WATCH),
        Kind(
            names.STACK_KIND,
            names.GROUP,
            names.VERSION,
            names.STACK_PLURAL,
            (*_WATCH, "create", "patch"),
            namespaced=False,
        ),
        Kind("StatefulSet", "apps", "v1", "statefulsets", _OWN, child=True),
        Kind("Deployment", "apps", "v1", "deployments", _OWN, child=True),
        Kind("Service", "", "v1", "services", _OWN, child=True),
        Kind("ConfigMap", "", "v1", "configmaps", _OWN, child=True),
        Kind("ServiceAccount", "", "v1", "serviceaccounts", _OWN, child=True),
        Kind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets", _OWN, child=True),
        Kind("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies", _OWN, child=True),
        Kind(
            "PodMonitor",
            "monitoring.coreos.com",
            "v1",
            "podmonitors",
            ("get", "list", "create", "patch", "delete"),
            child=True,
            optional=True,
        ),
        Kind("Secret", "", "v1", "secrets", ("create",)),
        Kind("Pod", "", "v1", "pods", _WATCH),
        Kind("Node", "", "v1", "nodes", _WATCH, namespaced=False),
        Kind("Event", "", "v1", "events", ("list", "create")),
    )
}

PERMISSIONS: Final = (
    *(Permission(kind.group, kind.plural, kind.verbs) for kind in KINDS.values()),
    Permission(names.GROUP, f"{names.DEPLOYMENT_PLURAL}/status", ("patch",)),
    Permission(names.GROUP, f"{names.STACK_PLURAL}/status", ("patch",)),
    # Clusters with OwnerReferencesPermissionEnforcement want it for blockOwnerDeletion.
    Permission(names.GROUP, f"{names.DEPLOYMENT_PLURAL}/finalizers", ("update",)),
)
"""Everything that the operator may do, one rule per resource."""
