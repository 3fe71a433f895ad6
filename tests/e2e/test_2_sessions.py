"""Sessions stick to their pod: over both routers, over a lost pod, over scaling."""

from __future__ import annotations

import concurrent.futures
import re
from typing import Any

import pytest
import state_talk
from kube import wait_for
from world import World

pytestmark = pytest.mark.cluster

LOST = "chat-engine-0"
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


def test_a_lost_pod_moves_only_its_sessions_and_gets_them_back_with_their_states(
    chat: World,
) -> None:
    before = homes(chat)
    old = chat.engine_pods()[LOST]["metadata"]["uid"]
    kept, control, *_ = [session for session, pod in before.items() if pod == LOST]
    elsewhere = next(session for session, pod in before.items() if pod != LOST)
    *first, question = state_talk.TEXTS
    state_talk.hold(chat, "chat", kept, tuple(first))
    refs = [
        answer["state"]["ref"] for answer in state_talk.hold(chat, "chat", control, tuple(first))
    ]
    expected = state_talk.go_on(chat, "chat", control, question)
    assert expected["pod"] == LOST and "Nora" in expected["text"], expected
    by_ref = [state_talk.call("chat", elsewhere, question, {"ref": each}) for each in refs]
    (fetched,) = state_talk.ask(chat, "chat", by_ref[-1])
    assert (fetched["pod"], fetched["state"]["source"]) == ("chat-engine-1", "peer"), fetched
    assert fetched["text"] == expected["text"]

    def gone() -> bool:
        # A pod that is ending still answers its peers: another one stands for it only afterwards.
        pod = chat.engine_pods().get(LOST, {"metadata": {"uid": ""}})
        return pod["metadata"]["uid"] != old and LOST not in homes_or_nothing(chat).values()

    with chat.no_new_pods():
        chat.kube.run("delete", "pod", LOST, "--grace-period=1", "--wait=false")
        wait_for(gone, "no session to be answered by the lost pod", timeout=60)
        assert set(homes(chat).values()) == {"chat-engine-1"}
        later = [state_talk.call("chat", kept, question, {"session": True}), by_ref[0]]
        for answer in state_talk.ask(chat, "chat", *later):
            assert (answer.get("status"), answer["code"]) == (503, "state_store_unavailable")
    # The deployment's own Ready may still be that of before the loss.
    replaced = "another pod in the lost one's place"
    wait_for(lambda: chat.is_replaced(LOST, old), replaced, timeout=420, every=1)
    chat.wait_ready()
    wait_for(lambda: homes(chat) == before, "every session to be home again", timeout=60)
    resumed = state_talk.go_on(chat, "chat", kept, question)
    assert (resumed["pod"], resumed["state"]["source"]) == (LOST, "durable"), resumed
    assert resumed["text"] == expected["text"]


def homes_or_nothing(world: World) -> dict[str, str]:
    """Like `homes`, while a pod is going away: what fails is left out."""
    try:
        return homes(world)
    except AssertionError:
        return {"": LOST}


def test_scaling_to_one_and_back_brings_every_session_home_with_its_states(chat: World) -> None:
    before, last = homes(chat), "chat-engine-1"
    session = next(session for session, pod in before.items() if pod == last)
    elsewhere = next(session for session, pod in before.items() if pod != last)
    *first, question = state_talk.TEXTS
    told = state_talk.hold(chat, "chat", session, tuple(first))
    assert {answer["pod"] for answer in told} == {last}
    with concurrent.futures.ThreadPoolExecutor() as pool:
        log = pool.submit(chat.kube.run, "logs", "-f", "--tail=1", last)
        chat.kube.run("scale", "rwkv", "chat", "--replicas=1")
        drained = re.search(r"drained: .*?(\d+) have no copy outside this pod", log.result())
    assert drained and int(drained[1]) >= len(told), log.result()
    assert chat.wait_ready()["status"]["ready"] == "1/1"
    assert set(homes(chat).values()) == {"chat-engine-0"}
    chat.kube.run("scale", "rwkv", "chat", "--replicas=2")
    assert chat.wait_ready()["status"]["ready"] == "2/2"
    wait_for(lambda: homes(chat) == before, "every session to be home again", timeout=60)
    resumed = state_talk.go_on(chat, "chat", session, question)
    assert (resumed["pod"], resumed["state"]["source"]) == (last, "durable"), resumed
    refs = [{"ref": answer["state"]["ref"]} for answer in told]
    calls = [state_talk.call("chat", elsewhere, question, ref) for ref in refs]
    fetched = state_talk.ask(chat, "chat", *calls)
    sources = [(answer["pod"], answer["state"]["source"]) for answer in fetched]
    assert sources == [("chat-engine-0", "peer")] * len(told)
    assert "Nora" in resumed["text"] and fetched[-1]["text"] == resumed["text"]
