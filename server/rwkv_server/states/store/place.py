"""Which store it is, and who reads it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from rwkv_server.states import refs


@dataclass(frozen=True)
class Place:
    """Where the states are.

    Attributes:
        kind: as in the deployment: perPod, ephemeral, persistentVolumeClaim, s3.
        shared: whether other engines read the same store.
        ordinal: of this engine.
        max_bytes_per_tenant: None is no limit.
    """

    kind: str
    shared: bool
    ordinal: int
    max_bytes_per_tenant: int | None

    def lies_elsewhere(self, ref: str) -> bool:
        """Whether the state of that name, if there is one, is in another engine's store."""
        home = refs.parse_home(ref)
        return home is not None and not self.shared and home.ordinal != self.ordinal
