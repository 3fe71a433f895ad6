"""The routers' Deployment and ConfigMap: HAProxy, and the agent that keeps it up to date.

A new config or API key reaches running pods through their mounts; the pod template only changes
when the pods themselves have to.
"""

from __future__ import annotations

from typing import Any, Final

from rwkv_operator import names
from rwkv_operator.api import spec
from rwkv_operator.manifests import haproxy, router_sizing, security
from rwkv_operator.manifests.context import Context
from rwkv_operator.manifests.metadata import build_metadata

CONFIG_PATH: Final = "/etc/haproxy"
CONFIG_FILE: Final = "haproxy.cfg"
KEYS_PATH: Final = "/etc/rwkv-keys"
AGENT: Final = "rwkv-operator-agent"

HAPROXY_USER_ID: Final = 99
"""As in the official image."""

LEAVE_SECONDS: Final = 5
"""Between a pod's removal from the Service and its closed port, for the nodes to notice."""

FIND_ENGINES_SECONDS: Final = 3
GRACE_MARGIN_SECONDS: Final = 10


def build_router_config(dep: spec.Deployment, ctx: Context) -> dict[str, Any]:
    """The ConfigMap with HAProxy's config."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": build_metadata(dep, names.router(dep.name), "router"),
        "data": {CONFIG_FILE: haproxy.render(dep, ctx)},
    }


def build_router_deployment(dep: spec.Deployment, ctx: Context) -> dict[str, Any]:
    """The Deployment; no router goes before its successor is ready."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": build_metadata(dep, names.router(dep.name), "router"),
        "spec": {
            "replicas": dep.spec.routing.replicas,
            # A new router is ready at once, but has to find the engines by DNS and check them.
            "minReadySeconds": FIND_ENGINES_SECONDS,
            "revisionHistoryLimit": 2,
            "strategy": {
                "type": "RollingUpdate",
                "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1},
            },
            "selector": {"matchLabels": names.selector(dep.name, "router")},
            "template": {
                "metadata": {"labels": names.labels(dep.name, "router")},
                "spec": _pod_spec(dep, ctx),
            },
        },
    }


def _pod_spec(dep: spec.Deployment, ctx: Context) -> dict[str, Any]:
    pod = {
        "serviceAccountName": names.service_account(dep.name),
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": (
            LEAVE_SECONDS + haproxy.STREAM_END_SECONDS + GRACE_MARGIN_SECONDS
        ),
        "securityContext": security.build_pod_security_context(),
        "topologySpreadConstraints": [_spread(dep)],
        "initContainers": [_agent_init(dep, ctx)],
        "containers": [_haproxy(dep, ctx), _agent(dep, ctx)],
        "volumes": _volumes(dep),
    }
    secrets = dep.spec.engine.pod_template.image_pull_secrets
    if secrets:
        pod["imagePullSecrets"] = [{"name": name} for name in secrets]
    return pod


def _spread(dep: spec.Deployment) -> dict[str, Any]:
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": names.selector(dep.name, "router")},
        "matchLabelKeys": ["pod-template-hash"],
    }


def _haproxy(dep: spec.Deployment, ctx: Context) -> dict[str, Any]:
    internal_key = {"name": names.internal_secret(dep.name), "key": names.INTERNAL_KEY}
    return {
        "name": "haproxy",
        "image": ctx.router_image,
        "imagePullPolicy": "IfNotPresent",
        # A master that starts workers: it takes a new config without closing the port, and
        # refuses a bad one. SIGUSR1, the image's stop signal, lets streams end.
        "command": ["haproxy", "-W", "-db", "-S", f"{haproxy.MASTER_SOCKET},mode,660"],
        "args": ["-f", f"{CONFIG_PATH}/{CONFIG_FILE}"],
        "env": [{"name": "RWKV_INTERNAL_KEY", "valueFrom": {"secretKeyRef": internal_key}}],
        "ports": [
            {"name": "http", "containerPort": names.PORT_ROUTER, "protocol": "TCP"},
            {"name": "ops", "containerPort": names.PORT_ROUTER_OPS, "protocol": "TCP"},
        ],
        "resources": _resources(dep),
        # Alive is ready: without an engine, clients get an answer that says so.
        "startupProbe": _probe("ops", period=1, timeout=2, failures=30),
        "livenessProbe": _probe("ops", period=10, timeout=5, failures=3),
        "readinessProbe": _probe("ops", period=2, timeout=2, failures=2),
        "lifecycle": {"preStop": {"sleep": {"seconds": LEAVE_SECONDS}}},
        "securityContext": {
            **security.build_container_security_context(),
            "runAsUser": HAPROXY_USER_ID,
            "runAsGroup": HAPROXY_USER_ID,
        },
        "volumeMounts": [
            {"name": "config", "mountPath": CONFIG_PATH, "readOnly": True},
            {"name": "run", "mountPath": haproxy.RUN_PATH},
        ],
    }


def _resources(dep: spec.Deployment) -> dict[str, Any]:
    limit = router_sizing.router_sizing(dep.spec.routing).memory_limit_bytes
    return {
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "limits": {"memory": f"{-(-limit // 2**20)}Mi"},
    }


def _agent_init(dep: spec.Deployment, ctx: Context) -> dict[str, Any]:
    """Writes the first map of API keys: HAProxy doesn't start without one."""
    container = _agent_container(dep, ctx, "init")
    return {"name": "agent-init", **container}


def _agent(dep: spec.Deployment, ctx: Context) -> dict[str, Any]:
    return {
        "name": "agent",
        **_agent_container(dep, ctx, "run"),
        "ports": [{"name": "agent", "containerPort": names.PORT_AGENT, "protocol": "TCP"}],
        "livenessProbe": _probe("agent", period=10, timeout=5, failures=3),
        # Linux drops a SIGTERM to a first process that hasn't set its handlers yet, and the pod
        # would stay for its whole grace period. By now the agent has started.
        "lifecycle": {"preStop": {"sleep": {"seconds": LEAVE_SECONDS}}},
    }


def _agent_container(dep: spec.Deployment, ctx: Context, command: str) -> dict[str, Any]:
    mounts: list[dict[str, Any]] = [
        {"name": "config", "mountPath": CONFIG_PATH, "readOnly": True},
        {"name": "run", "mountPath": haproxy.RUN_PATH},
    ]
    arguments = ["--config", f"{CONFIG_PATH}/{CONFIG_FILE}", "--run", haproxy.RUN_PATH]
    if dep.spec.auth.mode == "APIKeys":
        mounts.append({"name": "keys", "mountPath": KEYS_PATH, "readOnly": True})
        arguments += ["--keys", KEYS_PATH]
    return {
        "image": ctx.operator_image,
        "imagePullPolicy": "IfNotPresent",
        "command": [AGENT, command],
        "args": arguments,
        "resources": {
            "requests": {"cpu": "10m", "memory": "32Mi"},
            "limits": {"memory": "128Mi"},
        },
        "securityContext": security.build_container_security_context(),
        "volumeMounts": mounts,
    }


def _probe(port: str, period: int, timeout: int, failures: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": "/livez", "port": port},
        "periodSeconds": period,
        "timeoutSeconds": timeout,
        "failureThreshold": failures,
    }


def _volumes(dep: spec.Deployment) -> list[dict[str, Any]]:
    volumes: list[dict[str, Any]] = [
        {"name": "config", "configMap": {"name": names.router(dep.name)}},
        {"name": "run", "emptyDir": {"medium": "Memory", "sizeLimit": "16Mi"}},
    ]
    if dep.spec.auth.mode == "APIKeys":
        secret = dep.spec.auth.api_keys_secret or names.api_key_secret(dep.name)
        # A missing Secret is no reason not to answer: without keys, nobody is let in.
        source = {"secretName": secret, "optional": True, "defaultMode": 0o440}
        volumes.append({"name": "keys", "secret": source})
    return volumes
