"""The init container that downloads a model: it alone has a token and writes to the volume."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from rwkv_operator import names
from rwkv_operator.api import spec
from rwkv_operator.manifests import engine_config, model, security
from rwkv_operator.manifests.context import Context

TOKEN: Final = "RWKV_MODEL_TOKEN"


def build_fetch(
    dep: spec.Deployment, ctx: Context, resources: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The container; None where the source is no hub.

    Args:
        dep: the deployment.
        ctx: its stack.
        resources: what the pod has reserved anyway, without devices.
    """
    if dep.spec.model.hub is None:
        return None
    config = f"{engine_config.CONFIG_PATH}/{engine_config.FILE}"
    return {
        "name": names.CONTAINER_FETCH,
        "image": ctx.stack.engine_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["rwkv-server", "fetch", "--config", config],
        "env": _environment(dep),
        "ports": [{"name": "progress", "containerPort": names.PORT_FETCH, "protocol": "TCP"}],
        **({"resources": dict(resources)} if resources else {}),
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": security.build_container_security_context(),
        "volumeMounts": [
            {"name": "config", "mountPath": engine_config.CONFIG_PATH, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            {"name": model.MODEL_VOLUME, "mountPath": model.MODEL_PATH},
        ],
    }


def _environment(dep: spec.Deployment) -> list[dict[str, Any]]:
    own: list[dict[str, Any]] = [
        {"name": "HOME", "value": "/tmp"},
        # By it the owner of a lock on a shared cache is known.
        {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
    ]
    env = dep.spec.engine.pod_template.env
    return [*own, *({"name": name, "value": value} for name, value in env.items()), *_token(dep)]


def _token(dep: spec.Deployment) -> list[dict[str, Any]]:
    hub = dep.spec.model.hub
    if hub is None or hub.token is None or dep.spec.model.offline:
        return []
    reference = {"name": hub.token.name, "key": hub.token.key}
    return [{"name": TOKEN, "valueFrom": {"secretKeyRef": reference}}]
