"""A cluster in memory for tests of a pass: objects by kind and name, and a list of every write.

It stands in for `cluster/client.py` only. What an API server does with an object beyond keeping
it is not here; `tests/integration` has the real one.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from rwkv_operator import errors, names

Key = tuple[str, str]


class MemoryCluster:
    """Keeps what is applied; `refuse` maps a kind to the error that its writes get."""

    def __init__(self, *objects: Mapping[str, Any]) -> None:
        self.objects: dict[Key, dict[str, Any]] = {}
        self.writes: list[str] = []
        self.refuse: dict[str, errors.ClusterError] = {}
        self._next = 0
        for obj in objects:
            self.put(obj)

    def put(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        """Store an object as if somebody else had made it."""
        kept = copy.deepcopy(dict(obj))
        self._next += 1
        kept["metadata"].setdefault("uid", f"uid-{self._next}")
        kept["metadata"].setdefault("resourceVersion", str(self._next))
        kept["metadata"].setdefault("generation", 1)
        self.objects[kept["kind"], kept["metadata"]["name"]] = kept
        return kept

    def get(self, kind: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        return copy.deepcopy(self.objects.get((kind, name)))

    def find(
        self,
        kind: str,
        namespace: str | None,
        labels: str | None = None,
        fields: str | None = None,
    ) -> list[dict[str, Any]]:
        found = [obj for (its_kind, _), obj in self.objects.items() if its_kind == kind]
        if labels:
            key, _, value = labels.partition("=")
            found = [o for o in found if (o["metadata"].get("labels") or {}).get(key) == value]
        if fields:
            found = [obj for obj in found if _fits(obj, fields)]
        return copy.deepcopy(found)

    def find_if_served(
        self, kind: str, namespace: str | None, labels: str
    ) -> list[dict[str, Any]] | None:
        return None if kind == "PodMonitor" else self.find(kind, namespace, labels)

    def make(self, obj: Mapping[str, Any]) -> dict[str, Any]:
        kind, name = obj["kind"], obj["metadata"]["name"]
        self._write(f"make {kind} {name}", kind)
        if (kind, name) in self.objects:
            raise errors.Conflict("the object has been modified")
        return copy.deepcopy(self.put(obj))

    def apply(self, obj: Mapping[str, Any], uid: str, force: bool = True) -> dict[str, Any]:
        kind, name = obj["kind"], obj["metadata"]["name"]
        self._write(f"apply {kind} {name}", kind)
        before = self.objects[kind, name]
        if before["metadata"]["uid"] != uid:
            raise errors.Conflict("uid mismatch")
        merged = _merge(before, obj)
        merged["metadata"]["generation"] += 1
        return copy.deepcopy(self.put(merged))

    def apply_status(self, obj: Mapping[str, Any], uid: str) -> dict[str, Any]:
        self._write("status", names.DEPLOYMENT_KIND)
        stored = self.objects.get((obj["kind"], obj["metadata"]["name"]))
        if stored is None or stored["metadata"]["uid"] != uid:
            raise errors.Conflict("uid mismatch")
        stored["status"] = copy.deepcopy(dict(obj["status"]))
        return copy.deepcopy(stored)

    def create(self, obj: Mapping[str, Any]) -> bool:
        kind, name = obj["kind"], obj["metadata"]["name"]
        self._write(f"create {kind} {name.split('.')[0]}", kind)
        if (kind, name) in self.objects:
            return False
        self.put(obj)
        return True

    def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        self._write(f"delete {kind} {name}", kind)
        assert self.objects.pop((kind, name))["metadata"]["uid"] == uid

    def _write(self, text: str, kind: str) -> None:
        self.writes.append(text)
        if kind in self.refuse:
            raise self.refuse[kind]


def _merge(before: Any, after: Any) -> Any:
    if isinstance(before, dict) and isinstance(after, Mapping):
        return {**before, **{key: _merge(before.get(key), after[key]) for key in after}}
    return copy.deepcopy(after)


def _fits(obj: Mapping[str, Any], fields: str) -> bool:
    about = obj.get("involvedObject") or {}
    pairs = (pair.split("=", 1) for pair in fields.split(","))
    return all(about.get(key.removeprefix("involvedObject.")) == value for key, value in pairs)
