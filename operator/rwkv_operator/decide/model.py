"""Whether the engines have their model: what is on its way, and what keeps it from arriving.

A pod's own word counts most, its termination message when it ended, its report while it runs.
Where a pod can't even start, Kubernetes' own text is read for what concerns the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from rwkv_operator.api import conditions
from rwkv_operator.api.conditions import Condition
from rwkv_operator.api.model import ImageSource, PersistentVolumeClaimSource
from rwkv_operator.api.observed import EngineReport, FetchReport, Observed
from rwkv_operator.api.pods import Failure, Pod, Said
from rwkv_operator.api.spec import Deployment
from rwkv_operator.decide.engines import current_engines
from rwkv_operator.names import CONTAINER_FETCH

_ENDS: Final = ("ModelNotFound", "ModelInvalid", "CredentialsMissing", "DownloadFailed", "DiskFull")
_LOADED_PHASES: Final = ("Ready", "Draining")
_SHOWN_PODS: Final = 3

_PULL_REASONS: Final = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName")
_DENIED: Final = re.compile(r"\b40[13]\b|unauthorized|forbidden|denied|authenticat", re.IGNORECASE)
_ABSENT: Final = re.compile(
    r"not found|manifest unknown|name unknown|Never|InvalidImageName|invalid reference"
)


def decide_model_loaded(dep: Deployment, observed: Observed) -> Condition:
    """The ModelLoaded condition: has every engine of the current template loaded the weights?"""
    if dep.spec.replicas == 0:
        return _model("True", conditions.SCALED_TO_ZERO, "spec.replicas is 0, nothing to load")
    if observed.refusal is not None:
        return _model("Unknown", conditions.NOT_ADMITTED, "there are no engines to load it")
    for pod in observed.pods_of("engine"):
        problem = _problem(dep, pod)
        if problem is not None:
            return problem
    pods = current_engines(dep, observed)
    waiting = [pod for pod in pods if not _has_loaded(pod, observed.reports.get(pod.name))]
    loaded = len(pods) - len(waiting)
    if loaded >= dep.spec.replicas:
        return _loaded(dep, observed, pods)
    fetching = [pod for pod in waiting if pod.name in observed.fetches]
    # Who waits for a download tells less than the one that does it.
    fetching.sort(key=lambda pod: observed.fetches[pod.name].phase == "Waiting")
    details = [
        *(_fetch_text(pod, observed.fetches[pod.name]) for pod in fetching),
        *(_progress_text(p, observed.reports.get(p.name)) for p in waiting if p not in fetching),
    ]
    text = f"{loaded} of {dep.spec.replicas} engines have loaded the model"
    reason = conditions.DOWNLOADING if fetching else conditions.LOADING
    return _model("False", reason, "; ".join([text, *details[:_SHOWN_PODS]]), waiting=True)


def _problem(dep: Deployment, pod: Pod) -> Condition | None:
    """What keeps this pod from its model, if anything does."""
    failure = pod.failure
    if failure is None:
        return None
    if failure.said is not None and failure.said.reason in _ENDS:
        said = failure.said
        return _model("False", said.reason, f"{pod.name}: {said.message}{_facts(said)}")
    return (
        _missing_claim(dep, failure)
        or _missing_secret(dep, failure)
        or _failed_pull(dep, failure)
        or _full_folder(dep, failure)
        or _failed_fetch(failure)
    )


def _missing_claim(dep: Deployment, failure: Failure) -> Condition | None:
    """The scheduler's word about a claim that isn't there."""
    model = dep.spec.model
    if isinstance(model.source, PersistentVolumeClaimSource):
        field, claim = "source.persistentVolumeClaim.claimName", model.source.claim_name
    elif model.cache.claim_name is not None:
        field, claim = "cache.claimName", model.cache.claim_name
    else:
        return None
    if f'persistentvolumeclaim "{claim}" not found' not in failure.message:
        return None
    text = (
        f"spec.model.{field}: PersistentVolumeClaim {claim} not found in namespace "
        f"{dep.namespace}; create it"
    )
    return _model("False", "ModelNotFound", text)


def _missing_secret(dep: Deployment, failure: Failure) -> Condition | None:
    """The kubelet's word about the Secret with the token."""
    hub = dep.spec.model.hub
    if hub is None or hub.token is None or failure.container != CONTAINER_FETCH:
        return None
    if failure.reason != "CreateContainerConfigError" or "secret" not in failure.message.lower():
        return None
    text = (
        f"tokenSecretRef of spec.model.source wants key {hub.token.key} of Secret {hub.token.name} "
        f"in namespace {dep.namespace}; create it ({failure.message})"
    )
    return _model("False", "CredentialsMissing", text)


def _failed_pull(dep: Deployment, failure: Failure) -> Condition | None:
    """The kubelet's word about the model's image."""
    source = dep.spec.model.source
    if not isinstance(source, ImageSource) or failure.reason not in _PULL_REASONS:
        return None
    if source.reference not in failure.message:
        return None
    said = f"{failure.reason}: {failure.message}".replace(source.reference, "")
    reason = "DownloadFailed"
    if _DENIED.search(said):
        reason = "CredentialsMissing"
    elif _ABSENT.search(said):
        reason = "ModelNotFound"
    text = f"spec.model.source.image: {source.reference} can't be pulled: {failure.message}"
    return _model("False", reason, text)


def _full_folder(dep: Deployment, failure: Failure) -> Condition | None:
    """The kubelet's word about a folder of the pod that has grown over its limit."""
    if dep.spec.model.hub is None or 'EmptyDir volume "model"' not in failure.message:
        return None
    text = f"{failure.message}; raise spec.model.cache.sizeLimit or use a claim"
    return _model("False", "DiskFull", text)


def _failed_fetch(failure: Failure) -> Condition | None:
    """A download that ended without a word of its own: killed, or its container can't start."""
    if failure.container != CONTAINER_FETCH:
        return None
    return _model("False", "DownloadFailed", failure.message)


def _has_loaded(pod: Pod, report: EngineReport | None) -> bool:
    # A pod is only Ready once its engine answers, so its readiness is proof without a report.
    return pod.ready or (report is not None and report.phase in _LOADED_PHASES)


def _loaded(dep: Deployment, observed: Observed, pods: Iterable[Pod]) -> Condition:
    """All have loaded: the same weights, as far as they tell, or a session's answers would vary."""
    reports = (observed.reports.get(pod.name) for pod in pods)
    digests = {report.model.digest for report in reports if report and report.model}
    if len(digests) > 1:
        text = (
            f"the engines have loaded different weights: {', '.join(sorted(digests))}; "
            "name a commit as spec.model.source's revision, or use a cache claim"
        )
        return _model("False", "ModelInvalid", text)
    digest = f" {digests.pop()}" if digests else ""
    text = f"{dep.spec.replicas} of {dep.spec.replicas} engines have loaded model{digest}"
    return _model("True", conditions.LOADED, text)


def _progress_text(pod: Pod, report: EngineReport | None) -> str:
    if report is None:
        return f"{pod.name}: starting"
    percent = "" if report.percent is None else f" {report.percent}%"
    message = f", {report.message}" if report.message else ""
    return f"{pod.name}: {report.phase}{percent}{message}"


def _fetch_text(pod: Pod, fetch: FetchReport) -> str:
    percent = "" if fetch.percent is None else f" {fetch.percent}%"
    if fetch.phase != "Downloading":
        return f"{pod.name}: {fetch.phase}{percent}, {fetch.message}"
    total = "" if fetch.total is None else f" of {_size(fetch.total)}"
    return f"{pod.name}: {fetch.phase}{percent}, {_size(fetch.done)}{total}, {_size(fetch.rate)}/s"


def _size(count: int) -> str:
    for unit, bound in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= bound:
            return f"{count / bound:.1f} {unit}"
    return f"{count} B"


def _facts(said: Said) -> str:
    if said.found is None and said.wanted is None:
        return ""
    return f" (found {said.found}, wanted {said.wanted})"


def _model(
    status: conditions.Status, reason: str, message: str, waiting: bool = False
) -> Condition:
    return Condition(conditions.MODEL_LOADED, status, reason, message, waiting)
