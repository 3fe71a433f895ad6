"""What the engine pods tell about the model and the state store.

A pod's own word counts: its termination message when it ended, its report while it runs.
"""

from __future__ import annotations

from typing import Final

from rwkv_operator import names
from rwkv_operator.api import conditions
from rwkv_operator.api.conditions import Condition
from rwkv_operator.api.model import PersistentVolumeClaimSource
from rwkv_operator.api.observed import EngineReport, Observed
from rwkv_operator.api.pods import Pod
from rwkv_operator.api.spec import Deployment, EphemeralStore, PerPodStore

_MODEL_ENDS: Final = ("ModelNotFound", "ModelInvalid")
_STORE_ENDS: Final = ("StoreUnreachable", "StoreDenied")
_LOADED_PHASES: Final = ("Ready", "Draining")


def decide_model_loaded(dep: Deployment, observed: Observed) -> Condition:
    """The ModelLoaded condition: has every engine of the current template loaded the weights?"""
    if dep.spec.replicas == 0:
        return _model("True", conditions.SCALED_TO_ZERO, "spec.replicas is 0, nothing to load")
    for pod in observed.pods_of("engine"):
        said = pod.failure.said if pod.failure else None
        if said is not None and said.reason in _MODEL_ENDS:
            return _model("False", said.reason, f"{pod.name}: {said.message}{_facts(said)}")
    missing = _missing_claim(dep, observed)
    if missing is not None:
        return _model("False", "ModelNotFound", missing)
    pods = current_engines(dep, observed)
    waiting = [pod for pod in pods if not _has_loaded(pod, observed.reports.get(pod.name))]
    loaded = len(pods) - len(waiting)
    if loaded >= dep.spec.replicas:
        return _model("True", "Loaded", _loaded_text(dep, observed))
    text = f"{loaded} of {dep.spec.replicas} engines have loaded the model"
    details = [_progress_text(pod, observed.reports.get(pod.name)) for pod in waiting]
    return _model("False", "Loading", "; ".join([text, *details[:3]]), waiting=True)


def decide_store_ready(dep: Deployment, observed: Observed) -> Condition:
    """The StateStoreReady condition: did every engine's write-read-delete probe pass?"""
    if dep.spec.replicas == 0:
        return _store("True", conditions.SCALED_TO_ZERO, "spec.replicas is 0, nothing to probe")
    pods = current_engines(dep, observed)
    for pod in pods:
        said = pod.failure.said if pod.failure else None
        if said is not None and said.reason in _STORE_ENDS:
            return _store("False", said.reason, f"{pod.name}: {said.message}")
        report = observed.reports.get(pod.name)
        if report and report.store and not report.store.ok:
            return _store("False", report.store.reason, f"{pod.name}: {report.store.message}")
    passed = [pod for pod in pods if _probe_passed(observed.reports.get(pod.name))]
    if len(passed) < dep.spec.replicas:
        text = f"{len(passed)} of {dep.spec.replicas} engines have reported their probe"
        return _store("Unknown", "Probing", text, waiting=True)
    return _store("True", *_store_text(dep))


def current_engines(dep: Deployment, observed: Observed) -> tuple[Pod, ...]:
    """Engine pods of the newest template whose ordinal is within spec.replicas."""
    wanted = {names.engine_pod(dep.name, ordinal) for ordinal in range(dep.spec.replicas)}
    revision = observed.engines.revision if observed.engines else None
    return tuple(
        pod
        for pod in observed.pods_of("engine")
        if pod.name in wanted and (revision is None or pod.revision == revision)
    )


def _has_loaded(pod: Pod, report: EngineReport | None) -> bool:
    # A pod is only Ready once its engine answers, so its readiness is proof without a report.
    return pod.ready or (report is not None and report.phase in _LOADED_PHASES)


def _probe_passed(report: EngineReport | None) -> bool:
    return report is not None and report.store is not None and report.store.ok


def _missing_claim(dep: Deployment, observed: Observed) -> str | None:
    source = dep.spec.model.source
    if not isinstance(source, PersistentVolumeClaimSource):
        return None
    clue = f'persistentvolumeclaim "{source.claim_name}" not found'
    for pod in observed.pods_of("engine"):
        if pod.failure is not None and clue in pod.failure.message:
            return (
                f"spec.model.source.persistentVolumeClaim.claimName: PersistentVolumeClaim "
                f"{source.claim_name} not found in namespace {dep.namespace}; create it"
            )
    return None


def _loaded_text(dep: Deployment, observed: Observed) -> str:
    digests = {r.model.digest for r in observed.reports.values() if r.model}
    if len(digests) > 1:
        return "engines report different models: " + ", ".join(sorted(digests))
    digest = f" {digests.pop()}" if digests else ""
    return f"{dep.spec.replicas} of {dep.spec.replicas} engines have loaded model{digest}"


def _progress_text(pod: Pod, report: EngineReport | None) -> str:
    if report is None:
        return f"{pod.name}: starting"
    percent = "" if report.percent is None else f" {report.percent}%"
    message = f", {report.message}" if report.message else ""
    return f"{pod.name}: {report.phase}{percent}{message}"


def _store_text(dep: Deployment) -> tuple[str, str]:
    store = dep.spec.state.store
    if isinstance(store, EphemeralStore):
        return "Ephemeral", (
            f"states live in each engine pod (at most {store.size_limit}); they are lost when the "
            "pod is deleted, evicted, rescheduled or replaced by a rollout"
        )
    assert isinstance(store, PerPodStore)
    return "PerPod", (
        f"each engine has a volume of {store.size}; states outlive the pod and are lost with the "
        "volume or with the RWKVDeployment"
    )


def _facts(said: object) -> str:
    found, wanted = getattr(said, "found", None), getattr(said, "wanted", None)
    return "" if found is None and wanted is None else f" (found {found}, wanted {wanted})"


def _model(
    status: conditions.Status, reason: str, message: str, waiting: bool = False
) -> Condition:
    return Condition(conditions.MODEL_LOADED, status, reason, message, waiting)


def _store(
    status: conditions.Status, reason: str, message: str, waiting: bool = False
) -> Condition:
    return Condition(conditions.STATE_STORE_READY, status, reason, message, waiting)
