"""engine.yaml, version 1: what the operator tells `rwkv-server serve`.

The server's `settings` reads it and refuses keys it doesn't know; a contract test holds the two
together. Only what changes an engine's behaviour belongs here, because a changed file means new
pods: the number of replicas does not.
"""

from __future__ import annotations

from typing import Any, Final

import yaml

from rwkv_operator import names
from rwkv_operator.api import spec, state
from rwkv_operator.manifests import model
from rwkv_operator.manifests.context import Context
from rwkv_operator.manifests.metadata import build_metadata

VERSION: Final = 1
FILE: Final = "engine.yaml"
CONFIG_PATH: Final = "/etc/rwkv"
INTERNAL_KEY_PATH: Final = "/etc/rwkv-internal"
STATE_PATH: Final = "/var/lib/rwkv/state"
S3_CREDENTIALS_PATH: Final = "/etc/rwkv-s3"

ORDINAL: Final = "{ordinal}"
"""Stands for an engine's number in the address by which the others find it."""

ROUTER_CHECK_SECONDS: Final = 1
"""How often a router asks an engine whether it is ready; the drain waits for three of these."""

FLUSH_SECONDS: Final = 30
"""For a drain to bring states that are written behind into the store."""


def build_engine_config(dep: spec.Deployment, ctx: Context) -> dict[str, Any]:
    """The ConfigMap with engine.yaml."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": build_metadata(dep, names.engine(dep.name), "engine"),
        "data": {FILE: render(dep, ctx)},
    }


def render(dep: spec.Deployment, ctx: Context) -> str:
    """Text of engine.yaml."""
    wanted, engine, stack = dep.spec.model, dep.spec.engine, ctx.stack
    document = {
        "version": VERSION,
        "deployment": {"namespace": dep.namespace, "name": dep.name},
        "model": {
            "servedName": wanted.served_name,
            "source": model.source_name(wanted.source),
            "path": model.model_path(wanted),
            "format": wanted.format,
            "dtype": wanted.dtype,
            "maxModelLen": wanted.max_model_len,
            "download": model.build_download(wanted),
        },
        "stack": {
            "name": stack.name,
            "vendor": stack.vendor,
            "runtime": dict(stack.runtime_requirements),
            "supports": {"quantization": list(stack.supports.quantization)},
        },
        "engine": {
            "tensorParallelSize": dep.spec.hardware.devices_per_replica,
            "maxNumSeqs": engine.max_num_seqs,
            "maxNumBatchedTokens": engine.max_num_batched_tokens,
            "quantization": engine.quantization,
            "extraArgs": list(engine.extra_args),
        },
        "state": build_state(dep, ctx),
        "http": {
            "port": names.PORT_ENGINE,
            "internalKeyFile": f"{INTERNAL_KEY_PATH}/{names.INTERNAL_KEY}",
        },
        "ops": {"port": names.PORT_ENGINE_OPS},
        "drain": {
            "routerCheckIntervalSeconds": ROUTER_CHECK_SECONDS,
            "shutdownTimeoutSeconds": engine.shutdown_timeout_seconds,
            "flushTimeoutSeconds": FLUSH_SECONDS,
        },
    }
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True)


def build_state(dep: spec.Deployment, ctx: Context) -> dict[str, Any]:
    """Where an engine keeps states, its bounds on them, and where it finds the other engines."""
    wanted, routing = dep.spec.state, dep.spec.routing
    address = names.engine_host(dep.name, dep.namespace, ORDINAL, ctx.cluster_domain)
    return {
        "store": state.store_name(wanted.store),
        "path": None if isinstance(wanted.store, state.S3Store) else STATE_PATH,
        "s3": _s3(wanted.store),
        "defaultTtlSeconds": wanted.default_ttl_seconds,
        "maxBytesPerTenant": wanted.max_bytes_per_tenant,
        "hotBytes": wanted.hot_bytes,
        "automaticReuse": wanted.automatic_reuse,
        "maxUploadBytes": routing.max_state_bytes,
        "openAccess": dep.spec.auth.mode == "Open",
        "peers": {
            "url": f"http://{address}:{names.PORT_ENGINE}",
            "ordinals": routing.max_engine_replicas,
        },
    }


def _s3(store: state.Store) -> dict[str, Any] | None:
    if not isinstance(store, state.S3Store):
        return None
    return {
        "bucket": store.bucket,
        "prefix": store.prefix,
        "endpoint": store.endpoint,
        "region": store.region,
        "credentialsPath": S3_CREDENTIALS_PATH,
    }
