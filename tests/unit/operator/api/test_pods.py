import pod_objects
import pytest

from rwkv_operator.api.pods import Failure, Said, parse_pod, parse_said

SAID = {"reason": "ModelInvalid", "message": "model.safetensors: ffn.key.weight", "found": [3, 4]}


@pytest.mark.parametrize(
    ("status", "reason", "exit_code", "texts"),
    [
        pytest.param(
            pod_objects.unscheduled("0/3 nodes are available: 3 Insufficient memory."),
            "FailedScheduling",
            None,
            ["chat-engine-0: 0/3 nodes are available: 3 Insufficient memory."],
            id="no node takes the pod: the scheduler's message",
        ),
        pytest.param(
            pod_objects.waiting("ImagePullBackOff", 'pull "nowhere/x:1": not found'),
            "ImagePullBackOff",
            None,
            ["container engine", 'pull "nowhere/x:1": not found'],
            id="an image that can't be pulled: the runtime's message",
        ),
        pytest.param(
            pod_objects.waiting("CreateContainerConfigError", 'secret "keys" not found'),
            "CreateContainerConfigError",
            None,
            ['secret "keys" not found'],
            id="a missing Secret: the kubelet's message",
        ),
        pytest.param(
            pod_objects.crashed(137, "OOMKilled"),
            "OOMKilled",
            137,
            ["code 137 (OOMKilled), restarted 3 times"],
            id="killed for memory: OOMKilled, not CrashLoopBackOff",
        ),
        pytest.param(
            pod_objects.crashed(1, said="panic: no config", init=True, restarts=1),
            "CrashLoopBackOff",
            1,
            ["container agent-init exited with code 1 (Error), restarted 1 time: panic: no config"],
            id="a crash-looping init container is named",
        ),
        pytest.param(
            pod_objects.crashed(65, said=SAID),
            "CrashLoopBackOff",
            65,
            ["ModelInvalid: model.safetensors: ffn.key.weight (found [3, 4], wanted None)"],
            id="the server's own words are told",
        ),
        pytest.param(
            {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory."},
            "Evicted",
            None,
            ["The node was low on memory."],
            id="an evicted pod",
        ),
    ],
)
def test_a_pod_tells_why_it_does_not_run(
    status: dict, reason: str, exit_code: int | None, texts: list[str]
) -> None:
    failure = parse_pod(pod_objects.pod(**status)).failure
    assert failure is not None
    assert (failure.reason, failure.exit_code) == (reason, exit_code)
    for text in texts:
        assert text in failure.message


@pytest.mark.parametrize(
    "status",
    [
        pytest.param({}, id="not scheduled yet"),
        pytest.param(pod_objects.waiting("ContainerCreating"), id="its container is being made"),
        pytest.param(pod_objects.loading(), id="loading for the first time"),
        pytest.param(pod_objects.ready(), id="ready"),
        pytest.param(
            pod_objects.unscheduled(
                'running PreBind plugin "VolumeBinding": Operation cannot be fulfilled on '
                'persistentvolumeclaims "state": the object has been modified; please try again'
            ),
            id="a conflict that the scheduler tries again by itself",
        ),
    ],
)
def test_a_pod_on_its_way_has_no_failure(status: dict) -> None:
    assert parse_pod(pod_objects.pod(**status)).failure is None


def test_a_pod_that_crashed_and_loads_again_still_tells_of_it() -> None:
    status = pod_objects.loading()
    status["containerStatuses"][0] |= {
        "restartCount": 2,
        "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
    }
    assert parse_pod(pod_objects.pod(**status)).failure == Failure(
        "OOMKilled",
        "chat-engine-0: container engine exited with code 137 (OOMKilled), restarted 2 times",
        137,
        container="engine",
    )


def test_a_crash_of_long_ago_is_forgotten_once_ready() -> None:
    status = pod_objects.ready()
    status["containerStatuses"][0]["lastState"] = {"terminated": {"exitCode": 137}}
    assert parse_pod(pod_objects.pod(**status)).failure is None


def test_a_restarted_container_is_another_instance() -> None:
    first = pod_objects.ready()
    second = pod_objects.ready()
    second["containerStatuses"][0]["containerID"] = "containerd://2"
    one, two = (parse_pod(pod_objects.pod(**status)) for status in (first, second))
    assert one.instance != two.instance


def test_a_pod_that_downloads_is_known_and_each_try_is_another_instance() -> None:
    first, second = pod_objects.fetching(), pod_objects.fetching(restarts=1)
    one, two = (parse_pod(pod_objects.pod(**status)) for status in (first, second))
    assert one.fetching and two.fetching
    assert one.failure is None and one.instance != two.instance
    assert not parse_pod(pod_objects.pod(**pod_objects.loading())).fetching


def test_a_download_that_was_killed_and_runs_again_tells_of_it() -> None:
    failure = parse_pod(pod_objects.pod(**pod_objects.fetching(restarts=1))).failure
    assert failure is not None
    assert (failure.container, failure.exit_code) == ("model", 137)


def test_revision_comes_from_whichever_controller_made_the_pod() -> None:
    engine = parse_pod(pod_objects.pod(revision="a"))
    router = parse_pod(pod_objects.pod("chat-router-x", "router", "b"))
    assert (engine.revision, router.revision) == ("a", "b")
    assert (engine.component, router.component) == ("engine", "router")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, None),
        ("", None),
        ("Killed", None),
        ("[1]", None),
        ('{"message": "no reason"}', None),
        (
            '{"reason": "ModelNotFound", "message": "/models/x:\\n no  such folder"}',
            Said("ModelNotFound", "/models/x: no such folder"),
        ),
    ],
)
def test_only_our_servers_termination_messages_are_read(text: str | None, said: Said) -> None:
    assert parse_said(text) == said


def test_a_long_message_is_cut() -> None:
    said = parse_said('{"reason": "EngineFailed", "message": "' + "x" * 5000 + '"}')
    assert said is not None
    assert len(said.message) == 1024
