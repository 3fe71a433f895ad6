"""Every name, label, annotation and port of the operator, each owned here and nowhere else.

Other modules ask for a name; none of them writes a literal or joins strings to make one. Nothing
here reads an object or does I/O.
"""

from __future__ import annotations

import re
from typing import Final, Literal

GROUP: Final = "serving.rwkv.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

DEPLOYMENT_KIND: Final = "RWKVDeployment"
DEPLOYMENT_PLURAL: Final = "rwkvdeployments"
STACK_KIND: Final = "RWKVHardwareStack"
STACK_PLURAL: Final = "rwkvhardwarestacks"

FIELD_MANAGER: Final = "rwkv-operator"
STATUS_FIELD_MANAGER: Final = "rwkv-operator-status"

LABEL_DEPLOYMENT: Final = f"{GROUP}/deployment"
LABEL_COMPONENT: Final = f"{GROUP}/component"
LABEL_NAMESPACE: Final = "kubernetes.io/metadata.name"
LABEL_APP: Final = "app.kubernetes.io/name"
LABEL_INSTANCE: Final = "app.kubernetes.io/instance"
LABEL_APP_COMPONENT: Final = "app.kubernetes.io/component"
LABEL_MANAGED_BY: Final = "app.kubernetes.io/managed-by"

ANNOTATION_CONFIG_HASH: Final = f"{GROUP}/config-hash"
ANNOTATION_APPLIED_HASH: Final = f"{GROUP}/applied-hash"
ANNOTATION_REFUSAL: Final = f"{GROUP}/refusal"
"""On the engines' StatefulSet: why the preflight refused, while that holds."""

PORT_ENGINE: Final = 8000
PORT_ENGINE_OPS: Final = 8001
PORT_FETCH: Final = 8002
PORT_ROUTER: Final = 8080
PORT_ROUTER_OPS: Final = 8404
PORT_AGENT: Final = 8405

INTERNAL_KEY: Final = "key"
"""Key in the internal Secret that holds the secret between router and engines."""

CONTAINER_ENGINE: Final = "engine"
CONTAINER_FETCH: Final = "model"
"""The init container of an engine pod that downloads the model."""

VOLUME_S3: Final = "s3"
"""The engine pods' volume with the credentials of an S3 store."""

DEFAULT_TENANT: Final = "default"
"""Tenant of `auth.mode: Open`, and of the one key in a Secret that the operator makes."""

DEPLOYMENT_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
"""40 characters leave room for the suffixes and hashes that Kubernetes adds to pod names."""

RESERVED_SUFFIXES: Final = ("-engine", "-router", "-internal")
"""A deployment `a-engine` would want the Service that belongs to the engines of `a`."""

Component = Literal["engine", "router"]


def is_deployment_name(name: str) -> bool:
    """Whether a deployment may have this name, as the CRD's rule says it."""
    return DEPLOYMENT_NAME.fullmatch(name) is not None and not name.endswith(RESERVED_SUFFIXES)


def engine(deployment: str) -> str:
    """Name of the engines' StatefulSet, headless Service, ConfigMap, budget and policy."""
    return f"{deployment}-engine"


def router(deployment: str) -> str:
    """Name of the routers' Deployment, ConfigMap, budget and policy."""
    return f"{deployment}-router"


def service(deployment: str) -> str:
    """Name of the Service that clients talk to."""
    return deployment


def service_account(deployment: str) -> str:
    """Name of the ServiceAccount of engine and router pods."""
    return deployment


def pod_monitor(deployment: str) -> str:
    """Name of the PodMonitor."""
    return deployment


def internal_secret(deployment: str) -> str:
    """Name of the Secret that holds the key between router and engines."""
    return f"{deployment}-internal"


def api_key_secret(deployment: str) -> str:
    """Name of the Secret that is made where the user names none."""
    return f"{deployment}-api-key"


def engine_pod(deployment: str, ordinal: int | str) -> str:
    """Name of one engine pod."""
    return f"{engine(deployment)}-{ordinal}"


def engine_host(deployment: str, namespace: str, ordinal: int | str, cluster_domain: str) -> str:
    """DNS name of one engine pod: it belongs to the ordinal and outlives the pod's address.

    With a placeholder for the ordinal it is the pattern of all of them.
    """
    service_host = f"{engine(deployment)}.{namespace}.svc.{cluster_domain}"
    return f"{engine_pod(deployment, ordinal)}.{service_host}"


def service_host(deployment: str, namespace: str, cluster_domain: str) -> str:
    """DNS name of the Service that clients talk to."""
    return f"{service(deployment)}.{namespace}.svc.{cluster_domain}"


def selector(deployment: str, component: Component) -> dict[str, str]:
    """Labels that select one component's pods: as few as possible, and none of the user's."""
    return {LABEL_DEPLOYMENT: deployment, LABEL_COMPONENT: component}


def labels(deployment: str, component: Component | None = None) -> dict[str, str]:
    """Labels of a child; with a component they also match that component's selector."""
    common = {
        LABEL_APP: "rwkv",
        LABEL_INSTANCE: deployment,
        LABEL_MANAGED_BY: FIELD_MANAGER,
        LABEL_DEPLOYMENT: deployment,
    }
    if component is None:
        return common
    return {**common, LABEL_APP_COMPONENT: component, LABEL_COMPONENT: component}
