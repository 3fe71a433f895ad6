"""The model part of an RWKVDeployment: where the weights come from and how they are loaded.

As in `spec`, nothing here knows about other objects of the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rwkv_operator.api.parsing import Fields
from rwkv_operator.errors import InvalidSpec

FORMATS: Final = ("Auto", "SafeTensors", "PTH")
DTYPES: Final = ("Auto", "Float32", "BFloat16", "Float16")
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")


@dataclass(frozen=True)
class BundledSource:
    """A model inside the engine image."""

    name: str


@dataclass(frozen=True)
class PersistentVolumeClaimSource:
    """A model in a folder of a volume, mounted read-only."""

    claim_name: str
    path: str


@dataclass(frozen=True)
class ImageSource:
    """A model in a folder of an OCI image, mounted read-only."""

    reference: str
    pull_policy: str = "IfNotPresent"
    path: str = "."


@dataclass(frozen=True)
class SecretKey:
    """One key of a Secret of the deployment's namespace."""

    name: str
    key: str


@dataclass(frozen=True)
class HuggingFaceSource:
    """A repository of the Hugging Face hub, or of one that speaks its API."""

    repo: str
    revision: str = "main"
    files: tuple[str, ...] = ()
    token: SecretKey | None = None


@dataclass(frozen=True)
class ModelScopeSource:
    """A repository of ModelScope, or of one that speaks its API."""

    repo: str
    revision: str = "master"
    files: tuple[str, ...] = ()
    token: SecretKey | None = None


HubSource = HuggingFaceSource | ModelScopeSource
Source = BundledSource | PersistentVolumeClaimSource | ImageSource | HubSource


@dataclass(frozen=True)
class Cache:
    """Where a download is put: a claim that pods share, or a folder of each pod."""

    claim_name: str | None = None
    size_limit: str = "64Gi"


@dataclass(frozen=True)
class Model:
    """What is served, and how it is loaded."""

    source: Source
    served_name: str
    cache: Cache = Cache()
    offline: bool = False
    format: str = "Auto"
    dtype: str = "Auto"
    max_model_len: int = 4096

    @property
    def hub(self) -> HubSource | None:
        """The source where it is one that is downloaded from."""
        source = self.source
        return source if isinstance(source, HuggingFaceSource | ModelScopeSource) else None


def parse_model(model: Fields, name: str) -> Model:
    """Read `spec.model` of the deployment with that name."""
    source = _parse_source(model.child("source"))
    cache = model.child("cache")
    offline = model.flag("offline")
    if offline and not cache.has("claimName"):
        raise InvalidSpec(cache.at("claimName"), None, "a claim to find the model in, for offline")
    return Model(
        source=source,
        served_name=model.text("servedName", name),
        cache=Cache(cache.optional_text("claimName"), cache.quantity("sizeLimit", "64Gi")),
        offline=offline,
        format=model.choice("format", FORMATS, "Auto"),
        dtype=model.choice("dtype", DTYPES, "Auto"),
        max_model_len=model.integer("maxModelLen", 4096, 16, 2**20),
    )


def _parse_source(source: Fields) -> Source:
    kinds = ("bundled", "huggingFace", "modelScope", "persistentVolumeClaim", "image")
    kind = source.only_key(kinds)
    fields = source.child(kind)
    match kind:
        case "huggingFace":
            return HuggingFaceSource(fields.text("repo"), *_parse_revision(fields, "main"))
        case "modelScope":
            return ModelScopeSource(fields.text("repo"), *_parse_revision(fields, "master"))
        case "persistentVolumeClaim":
            return PersistentVolumeClaimSource(fields.text("claimName"), _parse_path(fields))
        case "image":
            policy = fields.choice("pullPolicy", PULL_POLICIES, "IfNotPresent")
            return ImageSource(fields.text("reference"), policy, _parse_path(fields))
        case _:
            return BundledSource(fields.text("name"))


def _parse_revision(fields: Fields, default: str) -> tuple[str, tuple[str, ...], SecretKey | None]:
    ref = fields.child("tokenSecretRef")
    token = SecretKey(ref.text("name"), ref.text("key")) if fields.has("tokenSecretRef") else None
    return fields.text("revision", default), fields.texts("files"), token


def _parse_path(fields: Fields) -> str:
    path = fields.text("path", ".")
    if path.startswith("/") or ".." in path.split("/"):
        raise InvalidSpec(fields.at("path"), path, "a path inside the volume")
    return path
