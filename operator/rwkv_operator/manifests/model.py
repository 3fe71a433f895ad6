"""Where an engine pod finds its model: path, volume and mount of each source, and what a hub needs.

The engine only ever reads. What brings a model from a hub is in `fetch`; which of a repository's
files are the model is the server's business.
"""

from __future__ import annotations

import hashlib
import posixpath
from typing import Any, Final
from urllib.parse import urlsplit

from rwkv_operator.api import model, spec

MODEL_VOLUME: Final = "model"
MODEL_PATH: Final = "/models"
IMAGE_PATH: Final = f"{MODEL_PATH}/image"
BUNDLED_PATH: Final = "/opt/rwkv/models"

HTTPS: Final = 443
_DEFAULT_PORTS: Final = {"https": HTTPS, "http": 80}
_PLAIN_TMP: Final = "2Gi"
_CONVERTING_TMP: Final = "64Gi"
"""A bound, not a reservation: a .pth is converted there where its own volume is read-only."""


def source_name(source: model.Source) -> str:
    """The kind of a source, as it is called in the spec and in engine.yaml."""
    match source:
        case model.BundledSource():
            return "bundled"
        case model.HuggingFaceSource():
            return "huggingFace"
        case model.ModelScopeSource():
            return "modelScope"
        case model.PersistentVolumeClaimSource():
            return "persistentVolumeClaim"
        case model.ImageSource():
            return "image"


def model_path(wanted: model.Model) -> str:
    """Where the engine finds the model's files."""
    match wanted.source:
        case model.BundledSource(name):
            return posixpath.join(BUNDLED_PATH, name)
        case model.PersistentVolumeClaimSource(_, path):
            return posixpath.normpath(posixpath.join(MODEL_PATH, path))
        case model.ImageSource(_, _, path):
            return posixpath.normpath(posixpath.join(IMAGE_PATH, path))
        case hub:
            return _download_path(hub, wanted.format)


def build_download(wanted: model.Model) -> dict[str, Any] | None:
    """What engine.yaml says to `rwkv-server fetch`; None where nothing is downloaded."""
    if wanted.hub is None:
        return None
    return {
        "repo": wanted.hub.repo,
        "revision": wanted.hub.revision,
        "offline": wanted.offline,
        "cacheDir": MODEL_PATH,
        "files": list(wanted.hub.files),
    }


def build_volumes(dep: spec.Deployment) -> list[dict[str, Any]]:
    """The volume with the model, where it isn't in the engine's image."""
    wanted = dep.spec.model
    match wanted.source:
        case model.BundledSource():
            return []
        case model.PersistentVolumeClaimSource(claim, _):
            volume: dict[str, Any] = {
                "persistentVolumeClaim": {"claimName": claim, "readOnly": True}
            }
        case model.ImageSource(reference, policy, _):
            volume = {"image": {"reference": reference, "pullPolicy": policy}}
        case _ if wanted.cache.claim_name is not None:
            volume = {"persistentVolumeClaim": {"claimName": wanted.cache.claim_name}}
        case _:
            volume = {"emptyDir": {"sizeLimit": wanted.cache.size_limit}}
    return [{"name": MODEL_VOLUME, **volume}]


def build_mounts(dep: spec.Deployment) -> list[dict[str, Any]]:
    """The engine's mount of that volume: read-only, whatever the source."""
    if not build_volumes(dep):
        return []
    is_image = isinstance(dep.spec.model.source, model.ImageSource)
    path = IMAGE_PATH if is_image else MODEL_PATH
    return [{"name": MODEL_VOLUME, "mountPath": path, "readOnly": True}]


def temporary_size(wanted: model.Model) -> str:
    """Bound of the engine's /tmp, where it converts a .pth that lies on a read-only volume."""
    converts = wanted.format != "SafeTensors" and isinstance(
        wanted.source, model.PersistentVolumeClaimSource | model.ImageSource
    )
    return _CONVERTING_TMP if converts else _PLAIN_TMP


def outbound_ports(dep: spec.Deployment) -> list[int]:
    """Ports that a download needs to reach: HTTPS, and those of the given hub and proxies."""
    if dep.spec.model.hub is None or dep.spec.model.offline:
        return []
    env = dep.spec.engine.pod_template.env
    named = {port_of(value) for name, value in env.items() if _is_address(name)}
    return sorted({HTTPS, *(port for port in named if port is not None)})


def _is_address(name: str) -> bool:
    name = name.upper()
    return name != "NO_PROXY" and name.endswith(("_ENDPOINT", "_DOMAIN", "_PROXY"))


def port_of(address: str) -> int | None:
    """The port of a URL, or of a host without a scheme; None where there is none."""
    url = urlsplit(address if "://" in address else f"http://{address}")
    try:
        return url.port or _DEFAULT_PORTS.get(url.scheme)
    except ValueError:
        return None


def _download_path(hub: model.HubSource, wanted_format: str) -> str:
    """A folder of the cache for exactly this choice of files, so that deployments can share it."""
    source = source_name(hub)
    chosen = "\n".join([source, hub.repo, hub.revision, wanted_format, *sorted(hub.files)])
    digest = hashlib.sha256(chosen.encode()).hexdigest()[:12]
    folder = hub.repo.replace("/", "--")
    return posixpath.join(MODEL_PATH, "hub", source, f"{folder}@{digest}")
