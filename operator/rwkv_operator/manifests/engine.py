"""The engines' StatefulSet: pods with a stable name each, so that a session finds its own again."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from rwkv_operator import names
from rwkv_operator.api import parsing, quantity, refusal, spec
from rwkv_operator.manifests import devices, engine_config, fetch, model, security, storage
from rwkv_operator.manifests.context import Context
from rwkv_operator.manifests.metadata import build_metadata, manifest_hash

GRACE_MARGIN_SECONDS: Final = 20
"""For the engine to end once its requests have, before the kubelet kills it."""

READY_BEFORE_NEXT_SECONDS: Final = 10
"""Routers learn of a new pod by DNS, which is cached; a rollout must not outrun them."""


def build_engine(dep: spec.Deployment, ctx: Context) -> dict[str, Any]:
    """The StatefulSet."""
    selector = names.selector(dep.name, "engine")
    statefulset: dict[str, Any] = {
        "serviceName": names.engine(dep.name),
        "replicas": 0 if ctx.refusal else dep.spec.replicas,
        # In order, a pod that never gets ready would block its own repair.
        "podManagementPolicy": "Parallel",
        "updateStrategy": {"type": "RollingUpdate"},
        "minReadySeconds": READY_BEFORE_NEXT_SECONDS,
        "revisionHistoryLimit": 2,
        "selector": {"matchLabels": selector},
        "template": build_template(dep, ctx),
    }
    claims = storage.build_volume_claim_templates(dep)
    if claims:
        statefulset["volumeClaimTemplates"] = claims
        statefulset["persistentVolumeClaimRetentionPolicy"] = {
            "whenDeleted": "Delete",
            "whenScaled": "Retain",
        }
    metadata = build_metadata(dep, names.engine(dep.name), "engine")
    if ctx.refusal:
        metadata["annotations"] = {names.ANNOTATION_REFUSAL: refusal.to_annotation(ctx.refusal)}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": metadata,
        "spec": statefulset,
    }


def build_template(dep: spec.Deployment, ctx: Context) -> dict[str, Any]:
    """The template of the engine pods."""
    return {"metadata": _template_metadata(dep, ctx), "spec": _pod_spec(dep, ctx)}


def grace_period_seconds(engine: spec.Engine) -> int:
    """Time from the start of a drain to the kill: the drain's bounds and a margin."""
    checks = 3 * engine_config.ROUTER_CHECK_SECONDS
    drain = checks + engine.shutdown_timeout_seconds + engine_config.FLUSH_SECONDS
    return drain + GRACE_MARGIN_SECONDS


def _template_metadata(dep: spec.Deployment, ctx: Context) -> dict[str, Any]:
    template = dep.spec.engine.pod_template
    config_hash = manifest_hash({"config": engine_config.render(dep, ctx)})
    return {
        "labels": {**template.labels, **names.labels(dep.name, "engine")},
        "annotations": {**template.annotations, names.ANNOTATION_CONFIG_HASH: config_hash},
    }


def _pod_spec(dep: spec.Deployment, ctx: Context) -> dict[str, Any]:
    fetching = fetch.build_fetch(dep, ctx, _host_resources(dep.spec, ctx))
    pod = {
        "serviceAccountName": names.service_account(dep.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_period_seconds(dep.spec.engine),
        "securityContext": {
            **security.build_pod_security_context(),
            **devices.build_groups(ctx.stack.devices),
        },
        **({"initContainers": [fetching]} if fetching else {}),
        "containers": [_container(dep, ctx)],
        "volumes": _volumes(dep, ctx),
        "topologySpreadConstraints": _spread(dep),
    }
    return {**pod, **_placement(dep, ctx)}


def _placement(dep: spec.Deployment, ctx: Context) -> dict[str, Any]:
    """What the stack and the user say about nodes; only what they say."""
    hardware, template = dep.spec.hardware, dep.spec.engine.pod_template
    wanted = {
        "nodeSelector": {**ctx.stack.node_selector, **hardware.node_selector},
        "tolerations": copy.deepcopy([*ctx.stack.tolerations, *hardware.tolerations]),
        "runtimeClassName": hardware.runtime_class_name or ctx.stack.runtime_class_name,
        "imagePullSecrets": [{"name": name} for name in template.image_pull_secrets],
        "priorityClassName": template.priority_class_name,
        "affinity": devices.build_affinity(dep, ctx.stack.node_requirements),
    }
    return {key: value for key, value in wanted.items() if value}


def _spread(dep: spec.Deployment) -> list[dict[str, Any]]:
    selector = {"matchLabels": names.selector(dep.name, "engine")}
    own = dep.spec.engine.pod_template.topology_spread_constraints
    if own:
        return [{"labelSelector": selector, **copy.deepcopy(dict(item))} for item in own]
    return [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": selector,
            "matchLabelKeys": ["controller-revision-hash"],
        }
    ]


def _container(dep: spec.Deployment, ctx: Context) -> dict[str, Any]:
    config = f"{engine_config.CONFIG_PATH}/{engine_config.FILE}"
    return {
        "name": names.CONTAINER_ENGINE,
        "image": ctx.stack.engine_image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["rwkv-server", "serve", "--config", config],
        "env": _environment(),
        "ports": [
            {"name": "http", "containerPort": names.PORT_ENGINE, "protocol": "TCP"},
            {"name": "ops", "containerPort": names.PORT_ENGINE_OPS, "protocol": "TCP"},
        ],
        "resources": build_resources(dep.spec, ctx),
        # The parent answers in seconds whatever the model's size; readiness waits for the model.
        "startupProbe": _probe("/livez", period=1, timeout=5, failures=300),
        "livenessProbe": _probe("/livez", period=10, timeout=10, failures=6),
        "readinessProbe": _probe("/readyz", period=2, timeout=5, failures=2),
        "lifecycle": {"preStop": {"exec": {"command": ["rwkv-server", "drain"]}}},
        "terminationMessagePath": "/dev/termination-log",
        # What killed it before it could say so is at least in the log's last lines.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": security.build_container_security_context(),
        "volumeMounts": _mounts(dep, ctx),
    }


def build_resources(wanted: spec.Spec, ctx: Context) -> dict[str, Any]:
    """The stack's resources with memory for states, overridden entry by entry, and the devices."""
    hardware = wanted.hardware
    resources = _host_resources(wanted, ctx)
    device = hardware.resource_name or ctx.stack.resource_name
    if device is not None:
        limits = {**resources.get("limits", {}), device: str(hardware.devices_per_replica)}
        resources["limits"] = limits
    return resources


def _host_resources(wanted: spec.Spec, ctx: Context) -> dict[str, dict[str, str]]:
    own = {kind: _entries(wanted.hardware.resources, kind) for kind in ("requests", "limits")}
    # Shared memory counts as the container's: the stack doesn't know of hotBytes, the user does.
    stacks = {
        kind: _with_memory(_entries(ctx.stack.resources, kind), wanted.state.hot_bytes)
        for kind in own
    }
    # Kubernetes takes no request above its limit: a limit of the user's lowers the stack's request.
    stacks["requests"] = {
        name: quantity.at_most(amount, own["limits"].get(name, amount))
        for name, amount in stacks["requests"].items()
    }
    merged = {kind: {**stacks[kind], **own[kind]} for kind in own}
    return {kind: entries for kind, entries in merged.items() if entries}


def _entries(resources: Mapping[str, Any], kind: str) -> dict[str, str]:
    return {name: str(amount) for name, amount in (resources.get(kind) or {}).items()}


def _with_memory(entries: dict[str, str], more: int) -> dict[str, str]:
    if "memory" not in entries:
        return entries
    return {**entries, "memory": parsing.add_bytes(entries["memory"], more)}


def _environment() -> list[dict[str, Any]]:
    fields = {
        "POD_NAME": "metadata.name",
        "POD_NAMESPACE": "metadata.namespace",
        "POD_IP": "status.podIP",
    }
    return [
        {"name": "HOME", "value": "/tmp"},
        {"name": "VLLM_NO_USAGE_STATS", "value": "1"},
        *(
            {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}
            for name, path in fields.items()
        ),
    ]


def _probe(path: str, period: int, timeout: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "ops"},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }


def _volumes(dep: spec.Deployment, ctx: Context) -> list[dict[str, Any]]:
    return [
        {"name": "config", "configMap": {"name": names.engine(dep.name)}},
        {
            "name": "internal",
            # Readable by the pod's group only, which is fsGroup.
            "secret": {"secretName": names.internal_secret(dep.name), "defaultMode": 0o440},
        },
        {"name": "tmp", "emptyDir": {"sizeLimit": model.temporary_size(dep.spec.model)}},
        *devices.build_volumes(dep.spec.hardware, ctx.stack.devices, dep.spec.state.hot_bytes),
        *storage.build_state_volumes(dep),
        *model.build_volumes(dep),
    ]


def _mounts(dep: spec.Deployment, ctx: Context) -> list[dict[str, Any]]:
    return [
        {"name": "config", "mountPath": engine_config.CONFIG_PATH, "readOnly": True},
        {"name": "internal", "mountPath": engine_config.INTERNAL_KEY_PATH, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},
        *devices.build_mounts(dep.spec.hardware, ctx.stack.devices),
        *storage.build_state_mounts(dep),
        *model.build_mounts(dep),
    ]
