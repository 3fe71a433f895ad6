"""Settings of the operator process, read once from its environment; values after that.

The chart sets every variable; the defaults are for a run outside of a cluster.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rwkv_operator import errors


@dataclass(frozen=True)
class Settings:
    """What one operator process is told.

    Attributes:
        namespace: where the operator itself runs.
        labels: labels of the operator's own pods, for the NetworkPolicies of engines and routers.
        watch_namespace: the one namespace to serve; None for all.
        catalogue: folder with stacks to apply at start; None for none.
        scrape_from: peers of a NetworkPolicy that may read metrics of engines and routers.
        workers: deployments that are worked on at the same time.
        http_port: port of /livez, /readyz and /metrics.
        silence_seconds: /livez fails when the API server has been silent for so long.
    """

    operator_image: str
    router_image: str
    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)
    watch_namespace: str | None = None
    catalogue: str | None = None
    cluster_domain: str = "cluster.local"
    scrape_from: tuple[Mapping[str, Any], ...] = ()
    workers: int = 4
    http_port: int = 8080
    silence_seconds: float = 300.0
    moving_seconds: float = 2.0
    unready_seconds: float = 30.0
    steady_seconds: float = 300.0


def parse_settings(environ: Mapping[str, str]) -> Settings:
    """Read the settings from environment variables.

    Raises:
        SettingsError: a variable is missing or has a value that can't be used.
    """
    return Settings(
        operator_image=_required(environ, "RWKV_OPERATOR_IMAGE"),
        router_image=_required(environ, "RWKV_ROUTER_IMAGE"),
        namespace=environ.get("POD_NAMESPACE") or "default",
        labels=_labels(environ, "RWKV_OPERATOR_LABELS"),
        watch_namespace=environ.get("RWKV_WATCH_NAMESPACE") or None,
        catalogue=environ.get("RWKV_CATALOGUE") or None,
        cluster_domain=environ.get("RWKV_CLUSTER_DOMAIN") or "cluster.local",
        scrape_from=_peers(environ, "RWKV_SCRAPE_FROM"),
        workers=int(_number(environ, "RWKV_WORKERS", 4)),
        http_port=int(_number(environ, "RWKV_HTTP_PORT", 8080)),
        silence_seconds=_number(environ, "RWKV_SILENCE_SECONDS", 300),
        moving_seconds=_number(environ, "RWKV_MOVING_SECONDS", 2),
        unready_seconds=_number(environ, "RWKV_UNREADY_SECONDS", 30),
        steady_seconds=_number(environ, "RWKV_STEADY_SECONDS", 300),
    )


def _required(environ: Mapping[str, str], name: str) -> str:
    value = environ.get(name)
    if not value:
        raise errors.SettingsError(name, value, "an image reference")
    return value


def _number(environ: Mapping[str, str], name: str, default: float) -> float:
    text = environ.get(name)
    if not text:
        return default
    try:
        value = float(text)
    except ValueError:
        value = -1
    if value <= 0:
        raise errors.SettingsError(name, text, "a number above 0")
    return value


def _labels(environ: Mapping[str, str], name: str) -> dict[str, str]:
    text = environ.get(name) or ""
    pairs = [item.split("=", 1) for item in text.split(",") if item]
    if any(len(pair) != 2 for pair in pairs):
        raise errors.SettingsError(name, text, "labels as key=value,key=value")
    return {key.strip(): value.strip() for key, value in pairs}


def _peers(environ: Mapping[str, str], name: str) -> tuple[Mapping[str, Any], ...]:
    text = environ.get(name) or "[]"
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, list) or not all(isinstance(peer, dict) for peer in value):
        raise errors.SettingsError(name, text, "a JSON list of NetworkPolicy peers")
    return tuple(value)
