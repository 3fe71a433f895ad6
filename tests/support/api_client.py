"""A bare HTTP client of a test API server: for many small questions without starting kubectl."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import httpx

from rwkv_cluster.apiserver import ApiServer
from rwkv_operator import names
from rwkv_operator.cluster.client import to_yaml
from rwkv_operator.cluster.kinds import KINDS

TRIAL = {"dryRun": "All", "fieldValidation": "Strict"}


def connect(apiserver: ApiServer) -> httpx.Client:
    """A client with the admin's certificate."""
    context = ssl.create_default_context(cafile=str(apiserver.folder / "ca.crt"))
    context.load_cert_chain(apiserver.folder / "admin.crt", apiserver.folder / "admin.key")
    return httpx.Client(base_url=apiserver.url, verify=context, trust_env=False, timeout=30)


def try_create(client: httpx.Client, obj: Mapping[str, Any]) -> httpx.Response:
    """Ask to create an object, strictly as kubectl does, but to keep nothing."""
    namespace = obj["metadata"].get("namespace", "default")
    return client.post(KINDS[obj["kind"]].path(namespace), params=TRIAL, json=dict(obj))


def try_apply(client: httpx.Client, obj: Mapping[str, Any]) -> httpx.Response:
    """Ask to apply an object on the server's side, as the operator does, but to keep nothing."""
    metadata = obj["metadata"]
    path = KINDS[obj["kind"]].path(metadata["namespace"], metadata["name"])
    headers = {"content-type": "application/apply-patch+yaml"}
    params = {**TRIAL, "fieldManager": names.FIELD_MANAGER}
    return client.patch(path, params=params, content=to_yaml(dict(obj)), headers=headers)
