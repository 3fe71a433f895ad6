"""Everything that one deployment consists of, in the order in which it is applied.

Secrets are not here: they are created once and never compared (`secrets.py`).
"""

from __future__ import annotations

from typing import Any

from rwkv_operator.api import spec
from rwkv_operator.manifests import (
    engine,
    engine_config,
    monitoring,
    router,
    security,
    service,
)
from rwkv_operator.manifests.context import Context
from rwkv_operator.manifests.metadata import build_owned


def build_children(dep: spec.Deployment, ctx: Context) -> list[dict[str, Any]]:
    """All children that the deployment should have now.

    Identity, policies and configuration come before the pods that need them. A child that isn't
    in the list and is owned by the deployment has to go.
    """
    children = (
        security.build_service_account(dep),
        security.build_engine_policy(dep, ctx),
        security.build_router_policy(dep, ctx),
        security.build_engine_budget(dep),
        security.build_router_budget(dep),
        engine_config.build_engine_config(dep, ctx),
        router.build_router_config(dep, ctx),
        service.build_engine_service(dep),
        service.build_service(dep),
        engine.build_engine(dep, ctx),
        router.build_router_deployment(dep, ctx),
        monitoring.build_pod_monitor(dep, ctx),
    )
    return [build_owned(dep, child) for child in children if child is not None]
