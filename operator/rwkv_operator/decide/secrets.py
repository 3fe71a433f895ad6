"""When to make the Secrets: they can't be read, so whether one is missing has to be inferred.

Making one that is there changes nothing, but is a call; at rest there should be none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from rwkv_operator.api.observed import RouterReport
from rwkv_operator.api.pods import Pod

COLLECTED_WITHIN_SECONDS: Final = 60.0
"""For so long after a deployment was made, Secrets may be those of a former one of its name."""

_NO_VARIABLE: Final = "CreateContainerConfigError"
_NO_KEYS: Final = "InvalidAPIKeys"


def are_awaited(pods: Iterable[Pod]) -> bool:
    """Whether a pod may be waiting for a Secret: as a volume, or as a variable."""
    return any(_waits(pod) for pod in pods if not pod.ready and not pod.terminating)


def are_keys_missing(reports: Iterable[RouterReport]) -> bool:
    """Whether a router finds no usable API key, as when somebody has deleted the Secret."""
    return any(report.reason == _NO_KEYS for report in reports)


def may_be_anothers(obj: Mapping[str, Any], live: Mapping[Any, Any], now: str) -> bool:
    """Whether a Secret that is there may go in a moment, with a deployment that is gone already.

    Args:
        obj: the deployment.
        live: its children; where there is one, its Secrets were made before.
        now: the time, in Kubernetes' format.
    """
    created = obj["metadata"].get("creationTimestamp")
    if live or created is None:
        return False
    return (_time(now) - _time(created)).total_seconds() < COLLECTED_WITHIN_SECONDS


def _waits(pod: Pod) -> bool:
    if pod.failure is not None:
        return pod.failure.reason == _NO_VARIABLE
    # A pod gets its address once its volumes are mounted.
    return bool(pod.node) and pod.ip is None


def _time(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
