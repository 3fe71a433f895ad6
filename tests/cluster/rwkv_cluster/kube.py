"""The few requests that the bring-up itself makes of an API server.

Not a general client: tests and operators use their own with the kubeconfig.
"""

import json
import ssl
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import httpx

from rwkv_cluster import errors

Object = dict[str, Any]
FIELD_MANAGER = "rwkv-cluster"


class Client:
    """Speaks to one API server with a client certificate.

    Args:
        url: Its address.
        pki: Folder with `ca.crt`, `<user>.crt` and `<user>.key`.
        user: Whose certificate to use.
    """

    def __init__(self, url: str, pki: Path, user: str = "admin") -> None:
        context = ssl.create_default_context(cafile=str(pki / "ca.crt"))
        context.load_cert_chain(pki / f"{user}.crt", pki / f"{user}.key")
        # No environment: a proxy variable must not carry this traffic off the machine.
        self._http = httpx.Client(base_url=url, verify=context, trust_env=False, timeout=10)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def is_ready(self) -> bool:
        """Whether the server says that it is ready."""
        try:
            return self._http.get("/readyz", timeout=2).status_code == 200
        except httpx.HTTPError:
            return False

    def get(self, path: str) -> Object | None:
        """Return an object or list, None where there is none."""
        answer = self._http.get(path)
        return None if answer.status_code == 404 else _body(answer)

    def apply(self, path: str, obj: Mapping[str, Any]) -> Object:
        """Server-side apply one object at its path."""
        return _body(
            self._http.patch(
                path,
                params={"fieldManager": FIELD_MANAGER, "force": "true"},
                headers={"content-type": "application/apply-patch+yaml"},
                content=json.dumps(obj),
            )
        )

    def patch(self, path: str, change: Mapping[str, Any]) -> Object:
        """Merge-patch one object."""
        headers = {"content-type": "application/merge-patch+json"}
        return _body(self._http.patch(path, headers=headers, content=json.dumps(change)))

    def delete(self, path: str) -> None:
        """Delete one object; its absence is fine."""
        answer = self._http.delete(path)
        if answer.status_code != 404:
            _body(answer)


def wait_until(check: Callable[[], bool], what: str, seconds: float, pause: float = 0.05) -> None:
    """Call `check` until it holds; raise StartFailed with `what` after that many seconds."""
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise errors.StartFailed(f"{what}: not so after {seconds:.0f} s")
        time.sleep(pause)


def _body(answer: httpx.Response) -> Object:
    if answer.status_code >= 400:
        what = f"{answer.request.method} {answer.request.url.path}"
        raise errors.ClusterError(f"{what}: {answer.status_code} {answer.text[:500]}")
    result: Object = answer.json()
    return result
