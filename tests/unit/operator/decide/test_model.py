"""ModelLoaded, for each source: what is on its way, and what keeps the model from arriving."""

from dataclasses import replace
from typing import Any

import deployments
import observations as seen
import pod_objects
import pytest

from rwkv_operator.api.conditions import Condition
from rwkv_operator.api.observed import EngineReport, FetchReport, Observed
from rwkv_operator.decide import model, readiness

HUB = {"huggingFace": {"repo": "org/model", "tokenSecretRef": {"name": "hub", "key": "token"}}}
CLAIM = {"persistentVolumeClaim": {"claimName": "models", "path": "a"}}
IMAGE = {"image": {"reference": "registry.example/m:1"}}
CACHE = {"claimName": "cache"}
NO_CLAIM = '0/1 nodes are available: persistentvolumeclaim "{}" not found.'
DOWNLOADING = FetchReport("Downloading", "model.safetensors", 45, 1288490188, 2863311530, 36700160)


def decide(observed: Observed, source: dict[str, Any], **fields: Any) -> Condition:
    dep = deployments.parsed({"replicas": 2, "model": {"source": source, **fields}})
    return model.decide_model_loaded(dep, observed)


def fetching(*reports: FetchReport, restarts: int = 0) -> Observed:
    """Engines whose init containers say that."""
    pods = [
        seen.engine(i, **pod_objects.fetching(f"10.1.0.{i}", restarts)) for i in range(len(reports))
    ]
    fetches = {f"chat-engine-{i}": report for i, report in enumerate(reports)}
    return seen.starting(*pods).hear({}, fetches, {})


def failed(**status: Any) -> Observed:
    return seen.starting(seen.engine(0, **status))


def said(code: int, reason: str, **facts: Any) -> Observed:
    text = {"reason": reason, "message": "huggingFace org/model@main: said why", **facts}
    return failed(**pod_objects.crashed(code, said=text, init="model"))


def test_a_download_tells_percent_bytes_and_rate() -> None:
    found = decide(fetching(DOWNLOADING), HUB)
    assert (found.status, found.reason, found.waiting) == ("False", "Downloading", True)
    assert found.message == (
        "0 of 2 engines have loaded the model; "
        "chat-engine-0: Downloading 45%, 1.2 GiB of 2.7 GiB, 35.0 MiB/s"
    )


def test_who_downloads_is_told_before_who_waits() -> None:
    waiting = FetchReport("Waiting", "chat-engine-1 downloads", 45)
    found = decide(fetching(waiting, DOWNLOADING), HUB)
    first, second = found.message.split("; ")[1:]
    assert first.startswith("chat-engine-1: Downloading 45%")
    assert second == "chat-engine-0: Waiting 45%, chat-engine-1 downloads"


def test_before_the_hub_has_answered_nothing_is_made_up() -> None:
    found = decide(fetching(FetchReport("Resolving", "asking the hub")), HUB)
    assert found.reason == "Downloading"
    assert found.message.endswith("chat-engine-0: Resolving, asking the hub")


def test_one_that_downloads_counts_beside_one_that_has_loaded() -> None:
    observed = seen.serving(
        pods=(seen.engine(0), seen.engine(1, **pod_objects.fetching("10.1.0.9"))),
    ).hear({"chat-engine-0": seen.REPORT}, {"chat-engine-1": DOWNLOADING}, {})
    found = decide(observed, HUB)
    assert found.reason == "Downloading"
    assert found.message.startswith("1 of 2 engines have loaded the model; chat-engine-1:")


def test_a_conversion_in_the_engine_is_loading() -> None:
    observed = seen.starting(
        seen.engine(0, **pod_objects.loading()),
        reports={"chat-engine-0": EngineReport("Converting", "rwkv.pth", 40)},
    )
    found = decide(observed, CLAIM)
    assert (found.reason, found.waiting) == ("Loading", True)
    assert "chat-engine-0: Converting 40%, rwkv.pth" in found.message


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (66, "ModelNotFound"),
        (65, "ModelInvalid"),
        (77, "CredentialsMissing"),
        (75, "DownloadFailed"),
        (73, "DiskFull"),
    ],
)
def test_what_a_download_says_before_it_ends_is_the_reason(code: int, reason: str) -> None:
    found = decide(said(code, reason, found="404"), HUB)
    assert (found.status, found.reason, found.waiting) == ("False", reason, False)
    assert found.message == (
        "chat-engine-0: huggingFace org/model@main: said why (found 404, wanted None)"
    )


@pytest.mark.parametrize(
    ("observed", "source", "fields", "reason", "text"),
    [
        pytest.param(
            failed(**pod_objects.unscheduled(NO_CLAIM.format("models"))),
            CLAIM,
            {},
            "ModelNotFound",
            "spec.model.source.persistentVolumeClaim.claimName: PersistentVolumeClaim models not "
            "found in namespace talk; create it",
            id="the claim with the model isn't there",
        ),
        pytest.param(
            failed(**pod_objects.unscheduled(NO_CLAIM.format("cache"))),
            HUB,
            {"cache": CACHE},
            "ModelNotFound",
            "spec.model.cache.claimName: PersistentVolumeClaim cache not found",
            id="the claim of the cache isn't there",
        ),
        pytest.param(
            failed(
                **pod_objects.waiting(
                    "CreateContainerConfigError", 'secret "hub" not found', init="model"
                )
            ),
            HUB,
            {},
            "CredentialsMissing",
            "wants key token of Secret hub in namespace talk; create it",
            id="the Secret with the token isn't there",
        ),
        pytest.param(
            failed(
                **pod_objects.waiting(
                    "CreateContainerConfigError",
                    "couldn't find key token in Secret talk/hub",
                    init="model",
                )
            ),
            HUB,
            {},
            "CredentialsMissing",
            "couldn't find key token in Secret talk/hub",
            id="the Secret lacks the key",
        ),
        pytest.param(
            failed(**pod_objects.crashed(137, "OOMKilled", init="model")),
            HUB,
            {},
            "DownloadFailed",
            "container model exited with code 137 (OOMKilled)",
            id="the download was killed and couldn't say so",
        ),
        pytest.param(
            failed(
                phase="Failed",
                reason="Evicted",
                message='Usage of EmptyDir volume "model" exceeds the limit "4Gi". ',
            ),
            HUB,
            {},
            "DiskFull",
            "raise spec.model.cache.sizeLimit",
            id="the pod's own folder is too small",
        ),
        *(
            pytest.param(
                failed(**pod_objects.waiting(waiting, f"registry.example/m:1: {message}")),
                IMAGE,
                {},
                reason,
                f"spec.model.source.image: registry.example/m:1 can't be pulled: chat-engine-0: "
                f"container engine: registry.example/m:1: {message}",
                id=f"an image: {message}",
            )
            for waiting, message, reason in (
                ("ErrImagePull", "not found", "ModelNotFound"),
                ("ImagePullBackOff", "manifest unknown", "ModelNotFound"),
                ("ErrImageNeverPull", "it is not present", "ModelNotFound"),
                ("InvalidImageName", "cannot parse", "ModelNotFound"),
                ("ErrImagePull", "unexpected status: 401 Unauthorized", "CredentialsMissing"),
                ("ErrImagePull", "pull access denied", "CredentialsMissing"),
                ("ErrImagePull", "dial tcp: no such host", "DownloadFailed"),
                ("ErrImagePull", "sha256:40140199: connection reset", "DownloadFailed"),
            )
        ),
    ],
)
def test_what_kubernetes_says_about_the_model_is_the_reason(
    observed: Observed, source: dict[str, Any], fields: dict[str, Any], reason: str, text: str
) -> None:
    found = decide(observed, source, **fields)
    assert (found.status, found.reason) == ("False", reason)
    assert text in found.message


@pytest.mark.parametrize(
    ("observed", "source"),
    [
        pytest.param(
            failed(**pod_objects.waiting("ImagePullBackOff", "engine:1 not found")),
            IMAGE,
            id="the engine's own image",
        ),
        pytest.param(
            failed(**pod_objects.waiting("CreateContainerConfigError", 'secret "x" not found')),
            HUB,
            id="another Secret",
        ),
        pytest.param(
            failed(**pod_objects.unscheduled(NO_CLAIM.format("state"))), CLAIM, id="claim"
        ),
        pytest.param(failed(**pod_objects.crashed(137, "OOMKilled")), HUB, id="the engine itself"),
    ],
)
def test_what_does_not_concern_the_model_is_left_to_degraded(
    observed: Observed, source: dict[str, Any]
) -> None:
    assert decide(observed, source).reason == "Loading"


def test_a_download_that_goes_on_is_no_failure_any_more() -> None:
    dep = deployments.parsed({"replicas": 2, "model": {"source": HUB}})
    verdicts = readiness.decide_conditions(dep, fetching(DOWNLOADING, restarts=1), seen.ADMITTED)
    reasons = {verdict.type: verdict.reason for verdict in verdicts}
    assert reasons["ModelLoaded"] == reasons["Ready"] == "Downloading"
    assert reasons["Degraded"] == "AsSpecified"


def test_a_download_that_only_asks_again_still_is_one() -> None:
    resolving = FetchReport("Resolving", "asking the hub")
    found = decide(fetching(resolving, restarts=1), HUB)
    assert (found.reason, found.waiting) == ("DownloadFailed", False)


def test_engines_with_different_weights_have_not_loaded_the_model() -> None:
    other = replace(seen.REPORT, model=replace(seen.REPORT.model, digest="sha256:2"))
    reports = {"chat-engine-0": seen.REPORT, "chat-engine-1": other}
    verdict = decide(seen.serving(reports=reports), HUB)
    assert (verdict.status, verdict.reason) == ("False", "ModelInvalid")
    assert "different weights: sha256:1, sha256:2" in verdict.message
    # One that isn't of the current template has what it had.
    old = (seen.engine(0), seen.engine(1), seen.engine(2, seen.OLD_REVISION))
    reports = {"chat-engine-0": seen.REPORT, "chat-engine-2": other}
    assert decide(seen.serving(pods=old, reports=reports), HUB).status == "True"
