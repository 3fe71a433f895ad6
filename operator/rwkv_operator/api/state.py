"""The state part of an RWKVDeployment: where saved states are kept, how long and how many.

As in `spec`, nothing here knows about other objects of the cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rwkv_operator.api.parsing import Fields
from rwkv_operator.errors import InvalidSpec

STORES: Final = ("perPod", "ephemeral", "persistentVolumeClaim", "s3")
AUTOMATIC_REUSE: Final = ("Off", "Memory", "Durable")


@dataclass(frozen=True)
class PerPodStore:
    """One volume per engine pod, kept over restarts."""

    size: str = "10Gi"
    storage_class_name: str | None = None


@dataclass(frozen=True)
class EphemeralStore:
    """A folder that lives as long as its pod."""

    size_limit: str = "2Gi"


@dataclass(frozen=True)
class ClaimStore:
    """One volume that all engines share."""

    claim_name: str


@dataclass(frozen=True)
class S3Store:
    """A bucket that all engines share.

    Attributes:
        prefix: what the names of all objects begin with; empty for the bucket's root.
        endpoint: URL of a server that speaks S3; None is Amazon's of the region.
        credentials_secret: Secret with the keys `accessKeyId` and `secretAccessKey`.
    """

    bucket: str
    credentials_secret: str
    prefix: str = ""
    endpoint: str | None = None
    region: str = "us-east-1"


Store = PerPodStore | EphemeralStore | ClaimStore | S3Store


@dataclass(frozen=True)
class State:
    """Where saved states are kept, and the bounds on them.

    Attributes:
        hot_bytes: memory of each engine for snapshots, beside what the stack asks for.
        automatic_reuse: whether prompts that begin like an earlier one go on from its state.
    """

    store: Store = PerPodStore()
    default_ttl_seconds: int = 24 * 3600
    max_bytes_per_tenant: int = 10 * 2**30
    hot_bytes: int = 512 * 2**20
    automatic_reuse: str = "Memory"


def store_name(store: Store) -> str:
    """Kind of a store, as it is called in the spec and in engine.yaml."""
    match store:
        case PerPodStore():
            return "perPod"
        case EphemeralStore():
            return "ephemeral"
        case ClaimStore():
            return "persistentVolumeClaim"
        case S3Store():
            return "s3"


def is_shared(store: Store) -> bool:
    """Whether each engine reads what another has saved."""
    return isinstance(store, ClaimStore | S3Store)


def parse_state(state: Fields) -> State:
    """Read `spec.state`."""
    return State(
        store=_parse_store(state.child("store")),
        default_ttl_seconds=state.seconds("defaultTTL", "24h"),
        max_bytes_per_tenant=state.size("maxBytesPerTenant", "10Gi"),
        hot_bytes=state.size("hotBytes", "512Mi"),
        automatic_reuse=state.choice("automaticReuse", AUTOMATIC_REUSE, "Memory"),
    )


def _parse_store(store: Fields) -> Store:
    if not store.values:
        return PerPodStore()
    kind = store.only_key(STORES)
    fields = store.child(kind)
    match kind:
        case "ephemeral":
            return EphemeralStore(fields.quantity("sizeLimit", "2Gi"))
        case "persistentVolumeClaim":
            return ClaimStore(fields.text("claimName"))
        case "s3":
            return _parse_s3(fields)
        case _:
            size = fields.quantity("size", "10Gi")
            return PerPodStore(size, fields.optional_text("storageClassName"))


def _parse_s3(fields: Fields) -> S3Store:
    prefix = fields.values.get("prefix") or ""
    if not isinstance(prefix, str) or prefix != prefix.strip("/") or ".." in prefix.split("/"):
        raise InvalidSpec(fields.at("prefix"), prefix, "names joined by /, such as rwkv/states")
    return S3Store(
        bucket=fields.text("bucket"),
        credentials_secret=fields.child("credentialsSecretRef").text("name"),
        prefix=prefix,
        endpoint=fields.optional_text("endpoint"),
        region=fields.text("region", "us-east-1"),
    )
