"""Where a live object differs from what we set: the question before every write.

Fields that we don't set are others' or defaults, and never differ. Lists whose items have a key in
server-side apply are compared by it, so an item that somebody added is left alone there too. Who
is selected and who is let in is ours as a whole: there, what somebody added differs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rwkv_operator.api import quantity

_LIST_KEYS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "containers": (("name",),),
    "initContainers": (("name",),),
    "env": (("name",),),
    "volumes": (("name",),),
    "imagePullSecrets": (("name",),),
    "volumeMounts": (("mountPath",),),
    "ports": (("containerPort", "protocol"), ("port", "protocol")),
    "topologySpreadConstraints": (("topologyKey", "whenUnsatisfiable"),),
    "ownerReferences": (("uid",),),
}
_KEY_DEFAULTS: Final = {"protocol": "TCP"}

_WHOLE: Final = frozenset({"selector", "podSelector", "ingress", "egress"})
"""Fields that server-side apply sets as a whole, so that it also takes away what isn't ours."""

_QUANTITIES: Final = frozenset({"requests", "limits", "sizeLimit"})


def differences(desired: Mapping[str, Any], live: Mapping[str, Any]) -> tuple[str, ...]:
    """Paths of the fields that we set and that the live object has otherwise.

    Args:
        desired: the whole manifest as it would be applied.
        live: the object as the API server shows it.
    """
    found: list[str] = []
    _compare_maps(desired, live, "", found)
    return tuple(found)


def _compare(desired: Any, live: Any, path: str, found: list[str]) -> None:
    if path.rsplit(".", 1)[-1] in _WHOLE and live is not None:
        if _plain(desired) != _plain(live):
            found.append(path)
    elif isinstance(desired, Mapping) and isinstance(live, Mapping):
        _compare_maps(desired, live, path, found)
    elif isinstance(desired, list | tuple) and isinstance(live, list | tuple):
        _compare_lists(desired, live, path, found)
    elif not _same_value(desired, live, path):
        found.append(path)


def _compare_maps(
    desired: Mapping[str, Any], live: Mapping[str, Any], path: str, found: list[str]
) -> None:
    for key, value in desired.items():
        _compare(value, live.get(key), f"{path}.{key}" if path else key, found)


def _compare_lists(
    desired: Sequence[Any], live: Sequence[Any], path: str, found: list[str]
) -> None:
    key = _list_key(path, desired)
    if key is None:
        if len(desired) != len(live):
            found.append(path)
            return
        for index, (ours, theirs) in enumerate(zip(desired, live, strict=True)):
            _compare(ours, theirs, f"{path}[{index}]", found)
        return
    by_key = {_item_key(item, key): item for item in live}
    for item in desired:
        name = _item_key(item, key)
        _compare(item, by_key.get(name), f"{path}[{','.join(map(str, name))}]", found)


def _plain(value: Any) -> Any:
    """A selector or rule as the API server shows it: with defaults, without what is empty.

    But an empty selector stays, as it selects everything.
    """
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    kept = {
        key: _plain(item)
        for key, item in value.items()
        if item not in (None, [], ()) and not (key == "matchLabels" and not item)
    }
    return {**_KEY_DEFAULTS, **kept} if "port" in kept else kept


def _same_value(desired: Any, live: Any, path: str) -> bool:
    if desired == live:
        return True
    if live is None:
        # The API server drops what is empty.
        return desired is None or desired in ({}, [], (), "", False, 0)
    if _QUANTITIES.isdisjoint(path.split(".")):
        return False
    ours, theirs = quantity.amount(desired), quantity.amount(live)
    return ours is not None and ours == theirs


def _list_key(path: str, items: Sequence[Any]) -> tuple[str, ...] | None:
    field = path.rsplit(".", 1)[-1]
    for key in _LIST_KEYS.get(field, ()):
        if all(isinstance(item, Mapping) and key[0] in item for item in items):
            return key
    return None


def _item_key(item: Mapping[str, Any], key: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple(item.get(part, _KEY_DEFAULTS.get(part)) for part in key)
