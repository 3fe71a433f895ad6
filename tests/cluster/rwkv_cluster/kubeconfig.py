"""Renders a kubeconfig with everything inside it, so that the one file can be handed around."""

import base64
import json

from rwkv_cluster import pki


def build_kubeconfig(name: str, url: str, authority: bytes, client: pki.KeyPair) -> str:
    """Return a kubeconfig (JSON, which is YAML) with one cluster, user and context.

    Args:
        name: Name of all three.
        url: Address of the API server.
        authority: PEM of the CA that signed the server's certificate.
        client: The user's certificate and key.
    """
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {
                "name": name,
                "cluster": {"server": url, "certificate-authority-data": _encode(authority)},
            }
        ],
        "users": [
            {
                "name": name,
                "user": {
                    "client-certificate-data": _encode(client.cert),
                    "client-key-data": _encode(client.key),
                },
            }
        ],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
    }
    return json.dumps(config, indent=1) + "\n"


def _encode(pem: bytes) -> str:
    return base64.b64encode(pem).decode()
