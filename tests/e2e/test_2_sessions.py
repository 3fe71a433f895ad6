"""Sessions stick to their pod: over both routers, over a lost pod, over scaling."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from kube import wait_for
from world import World

pytestmark = pytest.mark.cluster

SESSIONS = [f"session-{number}" for number in range(24)]


def homes(world: World, url: str = "http://chat") -> dict[str, str]:
    """Which pod answers each session, asked through `url`."""
    body: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi."}], "max_tokens": 1}
    calls = [{"session": session, "body": body} for session in SESSIONS]
    answers = world.call(*calls, url=url, parallel=4)
    failed = [answer for answer in answers if "text" not in answer or "status" in answer]
    assert not failed, failed
    return {session: answer["pod"] for session, answer in zip(SESSIONS, answers, strict=True)}


def test_each_session_has_one_pod_over_both_routers(chat: World) -> None:
    first, second = (homes(chat, url) for url in chat.router_urls())
    assert first == second == homes(chat)
    assert set(first.values()) == set(chat.engine_pods())


def test_a_lost_pod_moves_only_its_sessions_and_gets_them_back(chat: World) -> None:
    before = homes(chat)
    old = chat.engine_pods()["chat-engine-0"]

    def gone() -> bool:
        return "chat-engine-0" not in homes_or_nothing(chat).values()

    with no_new_pods(chat):
        chat.kube.run("delete", "pod", "chat-engine-0", "--grace-period=1", "--wait=false")
        wait_for(gone, "no session to be answered by the lost pod", timeout=60)
        assert set(homes(chat).values()) == {"chat-engine-1"}
    gone_uid = old["metadata"]["uid"]

    def replaced() -> bool:
        new = chat.engine_pods().get("chat-engine-0")
        return new is not None and new["metadata"]["uid"] != gone_uid and is_ready(new)

    # The deployment's own Ready may still be that of before the loss.
    wait_for(replaced, "another pod in the lost one's place", timeout=420, every=1)
    chat.wait_ready()
    wait_for(lambda: homes(chat) == before, "every session to be home again", timeout=60)


@contextlib.contextmanager
def no_new_pods(world: World) -> Iterator[None]:
    """Nodes take no pod meanwhile: a lost one stays away for as long as the test looks."""
    nodes = ["-l", "kubernetes.io/os=linux"]
    world.kube.run("cordon", *nodes)
    try:
        yield
    finally:
        world.kube.run("uncordon", *nodes)


def is_ready(pod: dict[str, Any]) -> bool:
    """Whether the kubelet says so."""
    told = pod["status"].get("conditions", [])
    return ("Ready", "True") in {(entry["type"], entry["status"]) for entry in told}


def homes_or_nothing(world: World) -> dict[str, str]:
    """Like `homes`, while a pod is going away: what fails is left out."""
    try:
        return homes(world)
    except AssertionError:
        return {"": "chat-engine-0"}


def test_scaling_to_one_and_back_brings_every_session_home(chat: World) -> None:
    before = homes(chat)
    chat.kube.run("scale", "rwkv", "chat", "--replicas=1")
    assert chat.wait_ready()["status"]["ready"] == "1/1"
    assert set(homes(chat).values()) == {"chat-engine-0"}
    chat.kube.run("scale", "rwkv", "chat", "--replicas=2")
    assert chat.wait_ready()["status"]["ready"] == "2/2"
    wait_for(lambda: homes(chat) == before, "every session to be home again", timeout=60)
