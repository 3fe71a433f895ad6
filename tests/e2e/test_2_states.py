"""A conversation goes on from its saved state: at another pod, from every kind of store."""

from __future__ import annotations

import concurrent.futures
import itertools
from collections.abc import Iterator
from typing import Any

import claims
import pytest
import s3_pod
import state_talk
from kube import condition, wait_for
from world import World, deployment

pytestmark = pytest.mark.cluster

STORES: dict[str, dict[str, Any]] = {
    "shared": {"store": {"persistentVolumeClaim": {"claimName": "states"}}},
    "bucket": {"store": {"s3": s3_pod.STORE}, "automaticReuse": "Durable"},
}
REPLICAS = {"shared": 2, "bucket": 3}
NAMES = ("Nora", "Ben", "Ida", "Tom")
# Tokens of an answer that is under way when its engine is told to go, and has ended soon after.
LONG = 2000


def with_states(name: str, state: dict[str, Any]) -> dict[str, Any]:
    """A small deployment of some engines that share their states."""
    obj = deployment(name)
    obj["spec"]["replicas"] = REPLICAS[name]
    obj["spec"]["hardware"]["resources"] = {"requests": {"cpu": "50m"}}
    obj["spec"]["state"] = {**state, "hotBytes": "16Mi"}
    return obj


@pytest.fixture(scope="module")
def stores(world: World) -> Iterator[World]:
    """A deployment for each kind of shared store, all Ready."""
    claims.make_claim(world, "states")
    s3_pod.start(world)
    for name, state in STORES.items():
        world.kube.apply(with_states(name, state))
    for name in STORES:
        obj = world.wait_ready(name)
        assert condition(obj, "StateStoreReady")["reason"] == "Shared"
    yield world
    world.kube.run("delete", "rwkv", *STORES, "--wait=true")
    s3_pod.stop(world)
    world.kube.run("delete", "pvc", "states", "--wait=false")


@pytest.fixture(scope="module")
def dwindling(stores: World) -> Iterator[World]:
    """The same, but no engine that ends comes back."""
    with stores.no_new_pods():
        yield stores


def test_chats_that_resend_everything_are_reused_behind_three_engines(stores: World) -> None:
    texts = [
        [state_talk.OPENING.replace("Nora", f"{name} {number}"), *state_talk.TEXTS[1:], "Thanks."]
        for name in NAMES
        for number in range(2)
    ]
    short = {"model": "bucket", "max_tokens": 24}
    calls = [{"texts": chat, "body": short} for chat in texts]
    answers = ask_at_once(stores, calls)
    pods, latest = set(), []
    turns = len(texts[0])
    for chat in (answers[at : at + turns] for at in range(0, len(answers), turns)):
        first, *later = chat
        assert first["cached"] == 0, first
        prompts = [answer["prompt"] for answer in chat]
        for number, answer in enumerate(later, start=1):
            # What a busy store brings too late for one turn is there for a later one.
            assert answer["cached"] in {0, *prompts[:number]}, answer
            latest.append(answer["cached"] == prompts[number - 1])
        assert later[-1]["cached"] > 0, chat
        (pod,) = {answer["pod"] for answer in chat}
        pods.add(pod)
    assert sum(latest) >= 0.75 * len(latest), answers
    assert pods == set(stores.engine_pods("bucket")), "the chats came to some engines only"
    # Whoever wants the prompt's tokens back gets it read whole.
    whole = {**short, "extra_body": {"return_token_ids": True}}
    again = [{"body": {**whole, "messages": answer["messages"]}} for answer in answers]
    for plain, answer in zip(ask_at_once(stores, again), answers, strict=True):
        assert plain["cached"] == 0
        assert [plain[key] for key in SAME] == [answer[key] for key in SAME], answer


SAME = ("text", "tokens", "finish", "prompt")


def ask_at_once(world: World, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Make the calls at the bucket's deployment, four at a time."""
    return world.call(*calls, url="http://bucket", key=world.api_key("bucket"), parallel=4)


def test_credentials_of_the_bucket_are_nowhere_but_in_the_engines_container(stores: World) -> None:
    kinds = "rwkv,statefulsets,deployments,configmaps,events"
    texts = {"objects": stores.kube.run("get", kinds, "-A", "-o", "yaml")}
    for pod in stores.kube.items("pods", "-l", "serving.rwkv.dev/deployment=bucket"):
        name = pod["metadata"]["name"]
        texts[name] = stores.kube.logs(name, "--all-containers")
        mounts = {
            container["name"]
            for container in pod["spec"]["containers"]
            for mount in container.get("volumeMounts", [])
            if mount["name"] == "s3"
        }
        assert mounts == ({"engine"} if "-engine-" in name else set())
    assert [where for where, text in texts.items() if s3_pod.SECRET_KEY in text] == []


@pytest.mark.parametrize("name", STORES)
def test_a_session_goes_on_at_another_engine_with_the_same_tokens(
    dwindling: World, name: str
) -> None:
    home = f"{name}-engine-0"
    session = state_talk.at_home(dwindling, name, home, "kept")
    control = state_talk.at_home(dwindling, name, home, "control")
    *first, question = state_talk.TEXTS
    for each in (control, session):
        told = state_talk.hold(dwindling, name, each, tuple(first))
        assert {answer["pod"] for answer in told} == {home}
    expected = state_talk.go_on(dwindling, name, control, question)
    assert (expected["pod"], expected["state"]["source"]) == (home, "hot")
    assert "Nora" in expected["text"]
    others = set(dwindling.engine_pods(name)) - {home}
    dwindling.kube.run("delete", "pod", home, "--wait=true")
    answer = state_talk.go_on(dwindling, name, session, question)
    assert answer.get("pod") in others and answer["state"]["source"] == "durable", answer
    assert (answer["text"], answer["tokens"]) == (expected["text"], expected["tokens"])
    assert answer["state"]["parent"] == told[-1]["state"]["ref"]


def test_a_drain_writes_what_waits_and_another_engine_goes_on_from_all_of_it(
    dwindling: World,
) -> None:
    home = "bucket-engine-1"
    session = state_talk.at_home(dwindling, "bucket", home, "drained")
    openings = [{"role": "user", "content": f"Hello, I am {name}."} for name in NAMES]
    endless = {"ignore_eos": True, "min_tokens": LONG}
    body = {"model": "bucket", "stream": True, "stream_options": {"include_usage": True}}
    body |= {"max_tokens": LONG, "extra_body": endless}
    calls = [{"session": session, "body": {**body, "messages": [text]}} for text in openings]
    with concurrent.futures.ThreadPoolExecutor() as pool:
        # A write waits for 10 s: the store is back before, since the answers are long.
        with s3_pod.standing_still(dwindling):
            answering = pool.submit(ask_at_once, dwindling, calls)
            wait_for(
                lambda: answering.done() or dwindling.running(home) == len(calls),
                "all answers to be under way",
                every=0.1,
            )
            log = pool.submit(dwindling.kube.run, "logs", "-f", "--tail=1", home)
            dwindling.kube.run("delete", "pod", home, "--wait=false")
            wait_for(lambda: writing(dwindling, home), "the drain to write", timeout=90, every=0.1)
        answers = answering.result()
        assert f"drained: {len(calls)} states written" in log.result()
    told = [(answer["pod"], answer["tokens"], answer["cached"]) for answer in answers]
    assert told == [(home, LONG, 0)] * len(calls)
    for opening, answer in zip(openings, answers, strict=True):
        later = {"role": "user", "content": state_talk.TEXTS[-1]}
        chat = [opening, {"role": "assistant", "content": "Nice to meet you."}, later]
        assert where_it_goes_on(dwindling, chat, answer["prompt"]) != home


def writing(world: World, pod: str) -> bool:
    """Whether an engine's drain has come to its states."""
    progress = world.ask_ops(pod, "progress")
    return "writing states" in progress["message"]


def where_it_goes_on(world: World, chat: list[dict[str, str]], length: int) -> str:
    """The pod that has found the chat's beginning of that length, and answers as if it had not."""
    call = {"body": {"model": "bucket", "messages": chat, "max_tokens": 24}}

    def resumed() -> dict[str, Any]:
        # What a busy store brings too late for one request is there for the next.
        (answer,) = ask_at_once(world, [call])
        return answer if answer["cached"] == length else {}

    answer = wait_for(resumed, f"{length} tokens of {chat} to be found in the store")
    call["body"]["extra_body"] = {"return_token_ids": True}
    (plain,) = ask_at_once(world, [call])
    assert (plain["cached"], plain["text"]) == (0, answer["text"])
    pod: str = answer["pod"]
    return pod


def test_what_is_in_a_shared_store_is_counted(dwindling: World) -> None:
    looks = itertools.count()

    def counted(name: str) -> bool:
        # A deployment that is Ready is looked at every few minutes, or when it changes.
        dwindling.kube.run("annotate", "rwkv", name, f"look={next(looks)}", "--overwrite")
        state = dwindling.kube.get("rwkv", name)["status"]["state"]
        return state.get("count", 0) >= 6 and state["bytes"] > 0

    wait_for(lambda: all(map(counted, STORES)), "the states to be counted", timeout=90, every=1)
