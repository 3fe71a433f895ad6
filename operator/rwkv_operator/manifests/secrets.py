"""The two Secrets that the operator makes. They are created once and never read back.

Where the random keys come from is the caller's business: it passes them in.
"""

from __future__ import annotations

from typing import Any

from rwkv_operator import names
from rwkv_operator.api import spec
from rwkv_operator.manifests.metadata import build_metadata, build_owner_reference


def build_internal_secret(dep: spec.Deployment, key: str) -> dict[str, Any]:
    """The Secret with the key between router and engines."""
    return _secret(dep, names.internal_secret(dep.name), names.INTERNAL_KEY, key)


def build_api_key_secret(dep: spec.Deployment, key: str) -> dict[str, Any]:
    """The Secret with one API key, for deployments that name none of their own."""
    return _secret(dep, names.api_key_secret(dep.name), names.DEFAULT_TENANT, key)


def _secret(dep: spec.Deployment, name: str, entry: str, value: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            **build_metadata(dep, name),
            "ownerReferences": [build_owner_reference(dep)],
        },
        "type": "Opaque",
        "stringData": {entry: value},
    }
