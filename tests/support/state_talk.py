"""Turns of conversations whose states the engines keep, as calls of the client pod."""

from __future__ import annotations

from typing import Any

from world import World

OPENING = "Hello, my name is Nora."
TEXTS = (OPENING, "Tell me a joke.", "What is my name?")
"""A conversation; what its last turn asks is in no text but the first."""


def call(model: str, session: str, text: str, state: dict[str, Any]) -> dict[str, Any]:
    """One turn that sends its own text and nothing of what went before."""
    messages = [{"role": "user", "content": text}]
    body = {"model": model, "messages": messages, "max_tokens": 64, "extra_body": {"state": state}}
    return {"session": session, "body": body}


def ask(world: World, model: str, *calls: dict[str, Any]) -> list[dict[str, Any]]:
    """Make the calls at the deployment of that name, one after the other."""
    return world.call(*calls, url=f"http://{model}", key=world.api_key(model))


def hold(world: World, model: str, session: str, texts: tuple[str, ...]) -> list[dict[str, Any]]:
    """The first turns of a new session; each has to be saved."""
    states: list[dict[str, Any]] = [{"session": "new"}, *([{"session": True}] * len(texts))]
    turns = [call(model, session, text, state) for text, state in zip(texts, states, strict=False)]
    answers = ask(world, model, *turns)
    refs = [(answer.get("state") or {}).get("ref") for answer in answers]
    assert all(refs), answers
    return answers


def go_on(world: World, model: str, session: str, text: str) -> dict[str, Any]:
    """The next turn of a session."""
    (answer,) = ask(world, model, call(model, session, text, {"session": True}))
    return answer


def at_home(world: World, model: str, pod: str, prefix: str) -> str:
    """A session that the routers bring to that pod."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hi."}], "max_tokens": 1}
    names = [f"{prefix}-{number}" for number in range(8)]
    answers = ask(world, model, *({"session": name, "body": body} for name in names))
    found = [name for name, told in zip(names, answers, strict=True) if told.get("pod") == pod]
    assert found, f"of {names} none is at home at {pod}: {answers}"
    return found[0]
