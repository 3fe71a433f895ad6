"""A rolling update under streams, with the operator killed in the middle of it."""

from __future__ import annotations

import concurrent.futures
import json

import installation
import pytest
import state_talk
from kube import wait_for
from world import World

pytestmark = pytest.mark.cluster

LONG = 1200
OVER = "/tmp/rollout-is-over"


def long_stream(session: str) -> dict[str, object]:
    """A stream; made again and again, one is there whenever its pod is told to go."""
    body = {
        "prompt": "User: Tell me a joke.\n\nAssistant:",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": LONG,
        "extra_body": {"ignore_eos": True, "min_tokens": LONG},
    }
    return {"session": session, "body": body}


def test_a_rolling_update_breaks_no_stream_and_survives_an_operator_restart(chat: World) -> None:
    before = {name: pod["metadata"]["uid"] for name, pod in chat.engine_pods().items()}
    sessions = [state_talk.at_home(chat, "chat", pod, "stream") for pod in before]
    calls = [long_stream(session) for session in sessions for _ in range(2)]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        streams = pool.submit(chat.call, *calls, parallel=len(calls), until=OVER)
        try:
            wait_for(
                lambda: all(map(chat.running, before)), "streams from both engines", timeout=60
            )
            patch = json.dumps({"spec": {"engine": {"maxNumSeqs": 12}}})
            chat.kube.run("patch", "rwkv", "chat", "--type=merge", "-p", patch)
            wait_for(lambda: told_to_go(chat, before), "the rollout to begin", timeout=60)
            place = ["-n", installation.NAMESPACE]
            chat.kube.run("delete", "pod", *place, "-l", "app.kubernetes.io/name=rwkv-operator")
            wait_for(
                lambda: told_to_go(chat, before) == set(before),
                "both old pods to be told to go",
                timeout=180,
            )
        finally:
            chat.make_file(OVER)
        answers = streams.result()
    for answer in answers:
        assert answer.get("finish") == "length", answer
        assert answer["tokens"] == LONG, answer
    assert {answer["pod"] for answer in answers} == set(before), "the streams used one pod only"
    chat.wait_ready()
    after = {name: pod["metadata"]["uid"] for name, pod in chat.engine_pods().items()}
    assert set(after) == set(before)
    assert not set(after.values()) & set(before.values()), "a pod of the old template is left"


def told_to_go(world: World, before: dict[str, str]) -> set[str]:
    """The engines of `before` whose pod Kubernetes has told to end, or has ended."""
    staying = {
        pod["metadata"]["uid"]
        for pod in world.engine_pods().values()
        if "deletionTimestamp" not in pod["metadata"]
    }
    return {name for name, uid in before.items() if uid not in staying}
