"""The API server, as few calls: read, apply, create, delete.

Objects are plain dicts on the way in and out. Errors of the library end here: callers see those
of `errors.py`. Calls block; they are meant for threads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlencode

import kubernetes
import urllib3

from rwkv_operator import errors, names
from rwkv_operator.cluster.kinds import KINDS
from rwkv_operator.metrics import Metrics

_TIMEOUT: Final = (5, 30)
"""Seconds to connect and to read."""

_JSON: Final = "application/json"
_APPLY: Final = "application/apply-patch+yaml"
_MUTATING: Final = ("POST", "PATCH", "DELETE")
_PAGE: Final = 500

_NO_VERSION: Final = "1"
"""A resourceVersion that no object has: as a precondition it only lets new objects through."""

_NOT_YAML: Final = re.compile("[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
"""Characters that JSON may hold as they are, and YAML only escaped."""


def load_client(connections: int) -> kubernetes.client.ApiClient:
    """A client for the cluster that the operator runs in, or else of the kubeconfig."""
    configuration = kubernetes.client.Configuration()
    try:
        kubernetes.config.load_incluster_config(client_configuration=configuration)
    except kubernetes.config.ConfigException:
        kubernetes.config.load_kube_config(client_configuration=configuration)
    configuration.connection_pool_maxsize = connections
    return kubernetes.client.ApiClient(configuration)


class Cluster:
    """Typed access to the kinds in `kinds.py`, and to nothing else."""

    def __init__(self, api: kubernetes.client.ApiClient, metrics: Metrics) -> None:
        """Use a client of the official library; count what is written."""
        self._api = api
        self._metrics = metrics

    def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """One object, or None where there is none."""
        try:
            return self._call("GET", KINDS[kind].path(namespace, name))
        except errors.ClusterError as error:
            if error.status == 404:
                return None
            raise

    def find(
        self,
        kind: str,
        namespace: str | None,
        labels: str | None = None,
        fields: str | None = None,
    ) -> list[dict[str, Any]]:
        """All objects of a kind that fit the selectors, page by page."""
        entry = KINDS[kind]
        query = {"labelSelector": labels, "fieldSelector": fields, "limit": _PAGE}
        # Items of a list have neither kind nor apiVersion of their own.
        typed = {"apiVersion": entry.api_version, "kind": kind}
        found: list[dict[str, Any]] = []
        while True:
            page = self._call("GET", entry.path(namespace), query)
            found.extend({**typed, **item} for item in page["items"])
            token = page["metadata"].get("continue")
            if not token:
                return found
            query["continue"] = token

    def find_if_served(
        self, kind: str, namespace: str | None, labels: str
    ) -> list[dict[str, Any]] | None:
        """All objects of a kind with that label; None where the cluster doesn't have the kind."""
        try:
            return self.find(kind, namespace, labels)
        except errors.ClusterError as error:
            if error.status == 404 and KINDS[kind].optional:
                return None
            raise

    def make(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Make an object by server-side apply; returns it as it is now.

        Raises:
            Conflict: the name is taken; that object isn't touched.
        """
        metadata = {**obj["metadata"], "resourceVersion": _NO_VERSION}
        return self._apply({**obj, "metadata": metadata}, "", names.FIELD_MANAGER, True)

    def apply(self, obj: Mapping[str, Any], uid: str, force: bool = True) -> dict[str, Any]:
        """Set every field of a manifest by server-side apply; returns the object as it is now.

        Args:
            obj: the whole manifest.
            uid: of the live object, so that one that took its place meanwhile isn't touched.
            force: take over fields that others have set; only for what is ours.

        Raises:
            Conflict: another manager owns a field, or the object is another one by now.
        """
        return self._apply(_with_uid(obj, uid), "", names.FIELD_MANAGER, force)

    def apply_status(self, obj: Mapping[str, Any], uid: str) -> dict[str, Any]:
        """Set the whole status of an object."""
        return self._apply(_with_uid(obj, uid), "/status", names.STATUS_FIELD_MANAGER, True)

    def apply_evidence(self, stack: Mapping[str, Any], evidence: Mapping[str, Any]) -> None:
        """Set a stack's evidence, owned apart from its other fields so that they don't drop it."""
        manager = f"{names.FIELD_MANAGER}-evidence"
        self._apply({**stack, "spec": {"evidence": evidence}}, "", manager, False)

    def create(self, obj: Mapping[str, Any]) -> bool:
        """Make an object; False where the name is taken, and that one stays as it is."""
        path = KINDS[obj["kind"]].path(obj["metadata"].get("namespace"))
        try:
            self._call("POST", path, {"fieldManager": names.FIELD_MANAGER}, obj)
        except errors.ClusterError as error:
            if error.status == 409:
                return False
            raise
        return True

    def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Remove the very object with that uid; nothing where it is gone or another one."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            self._call("DELETE", KINDS[kind].path(namespace, name), {}, body)
        except errors.ClusterError as error:
            if error.status not in (404, 409):
                raise

    def _apply(
        self, obj: Mapping[str, Any], subresource: str, manager: str, force: bool
    ) -> dict[str, Any]:
        metadata = obj["metadata"]
        path = KINDS[obj["kind"]].path(metadata.get("namespace"), metadata["name"])
        query = {"fieldManager": manager, "force": "true" if force else "false"}
        return self._call("PATCH", path + subresource, query, obj, _APPLY)

    def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, object] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = _JSON,
    ) -> dict[str, Any]:
        if method in _MUTATING:
            self._metrics.mutating.labels(method).inc()
        chosen = {key: value for key, value in (query or {}).items() if value is not None}
        headers = {"Accept": _JSON, "Content-Type": content_type}
        self._api.update_params_for_auth(
            headers, [], ["BearerToken"], path, method, None, request_auth=None
        )
        url = f"{self._api.configuration.host}{path}" + (f"?{urlencode(chosen)}" if chosen else "")
        # The library would turn a dict into text itself, but not for apply's content type.
        payload: object = to_yaml(body) if content_type == _APPLY else body
        try:
            answer = self._api.call_api(method, url, headers, payload, _request_timeout=_TIMEOUT)
            text = answer.read()
        except kubernetes.client.ApiException as error:
            raise _translate(error.status, error.body, error.reason) from error
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise errors.ClusterError(f"the API server can't be reached: {error}") from error
        if not 200 <= answer.status < 300:
            raise _translate(answer.status, text, answer.reason)
        value: dict[str, Any] = json.loads(text)
        return value


def to_yaml(value: object) -> str:
    """JSON that is YAML too, as the API server wants for an apply.

    Escaped surrogates, by which JSON in ASCII writes an emoji, are an error there.
    """
    text = json.dumps(value, ensure_ascii=False)
    return _NOT_YAML.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _with_uid(obj: Mapping[str, Any], uid: str) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "uid": uid}}


def _translate(status: int, body: object, reason: object) -> errors.ClusterError:
    message = str(reason)
    try:
        message = json.loads(body if isinstance(body, str | bytes) else "")["message"]
    except (ValueError, KeyError, TypeError):
        pass
    if status == 409:
        return errors.Conflict(message)
    return errors.ClusterError(message, status=status)
