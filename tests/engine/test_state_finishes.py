"""However a request ends, what its event says of its state is what the state holds.

Scheduled step by step, and a step ahead as on GPUs, where the state may have read more than the
answer shows.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from state_engine import Got, StateEngine

ROOM = 48
SLOTS = 4  # of the engine
NEW = [72, 105]


@pytest.fixture(params=["states", "states_ahead"])
def engine(request: pytest.FixtureRequest) -> StateEngine:
    engine: StateEngine = request.getfixturevalue(request.param)
    return engine


@pytest.fixture
def ahead(engine: StateEngine) -> bool:
    """Whether a step runs before the last one's tokens are known.

    0.18 waits where a step is computed as soon as it is scheduled, as in one process on a CPU.
    """
    import vllm

    return engine.core.batch_queue is not None and not vllm.__version__.startswith("0.18.")


@pytest.fixture(scope="module")
def prompt() -> list[int]:
    dice = random.Random(9)
    return [dice.randrange(1, 256) for _ in range(45)]


def check_exact(engine: StateEngine, got: Got, prompt: list[int]) -> None:
    """From each saved state and the tokens after it, the text goes on as if read anew."""
    from state_engine import Ask

    known, consumed = got.ended.tokens, got.ended.consumed
    assert known[: len(prompt)] == prompt
    assert got.ended.prompt_saved
    (wanted,) = engine.plain([known + NEW], 8)
    asks = [Ask(known[len(prompt) :] + NEW, 8, load=got.at_prompt)]
    if got.ended.saved:
        assert consumed <= len(known)
        asks.append(Ask(known[consumed:] + NEW, 8, load=got.save))
    assert [on.tokens for on in engine.run(*asks)] == [wanted] * len(asks)
    engine.memory.release(got.save, got.at_prompt)


def finish(engine: StateEngine, prompt: list[int], max_tokens: int = ROOM, **more: Any) -> Got:
    from state_engine import Ask

    ask = Ask(prompt, max_tokens, save=True, at_prompt=True, more=more)
    (got,) = engine.run(ask)
    return got


@pytest.mark.parametrize("count", [1, 2, 20])
def test_length(engine: StateEngine, prompt: list[int], count: int) -> None:
    got = finish(engine, prompt, count)
    assert got.ended.status == "length_capped" and got.ended.saved
    assert got.ended.consumed == len(prompt) + count - 1
    check_exact(engine, got, prompt)


def test_stop_token(engine: StateEngine, ahead: bool, prompt: list[int]) -> None:
    (text,) = engine.plain([prompt], ROOM)
    last = next(i for i in range(5, ROOM) if text[i] not in text[:i])
    got = finish(engine, prompt, stop_token_ids=[text[last]])
    assert got.ended.status == "stopped" and got.ended.saved
    assert got.ended.tokens == prompt + text[: last + 1]
    assert got.ended.consumed == len(prompt) + last + ahead
    check_exact(engine, got, prompt)


def test_end_of_text(engine: StateEngine, ahead: bool) -> None:
    tokenizer = engine.offline.get_tokenizer()
    chat = [{"role": "user", "content": "Hello. My name is Ada."}]
    text = tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    prompt = tokenizer.encode(text, add_special_tokens=False)
    got = finish(engine, prompt, 200, ignore_eos=False)
    assert got.reason == "stop" and got.ended.status == "stopped"
    assert got.ended.consumed == len(got.ended.tokens) - 1 + ahead
    check_exact(engine, got, prompt)


def test_stop_string(engine: StateEngine, prompt: list[int]) -> None:
    """The API process finds it and ends the request, which has gone on meanwhile."""
    tokenizer = engine.offline.get_tokenizer()
    (text,) = engine.plain([prompt], ROOM)
    word = next(w for t in text[4:] if (w := tokenizer.decode([t])).strip() and "\ufffd" not in w)
    got = finish(engine, prompt, stop=[word])
    assert got.reason == "stop" and got.ended.status == "aborted"
    assert got.ended.tokens[: len(prompt) + len(got.tokens)] == prompt + got.tokens
    check_exact(engine, got, prompt)


@pytest.mark.parametrize("steps", [2, 3, 4, 11])
def test_abort(engine: StateEngine, ahead: bool, prompt: list[int], steps: int) -> None:
    from state_engine import Ask

    name, use = engine.add(Ask(prompt, ROOM, save=True, at_prompt=True))
    for _ in range(steps):
        engine.llm.step()
    engine.llm.abort_request([name])
    engine.settle()
    got = engine.got(None, *use)
    assert got.ended.status == "aborted"
    if not ahead:
        assert got.ended.saved and got.ended.consumed == len(got.ended.tokens) - 1
    check_exact(engine, got, prompt)


def test_abort_before_the_prompt_is_read(engine: StateEngine, prompt: list[int]) -> None:
    from state_engine import Ask

    name, use = engine.add(Ask(prompt, ROOM, save=True, at_prompt=True))
    engine.llm.step()
    engine.llm.abort_request([name])
    engine.settle()
    got = engine.got(None, *use)
    assert got.ended.status == "aborted"
    engine.memory.release(got.save, got.at_prompt)


def test_abort_of_one_that_waits(engine: StateEngine, prompt: list[int]) -> None:
    """As many as there are places run; the last one never had any."""
    from state_engine import Ask

    running = [engine.add(Ask(prompt, 8)) for _ in range(SLOTS)]
    name, use = engine.add(Ask(prompt, ROOM, save=True, at_prompt=True))
    engine.llm.step()
    engine.llm.abort_request([name])
    outputs = engine.drain()
    for other, transfer in running:
        assert engine.got(outputs[other], *transfer).ended.status == "length_capped"
    ended = engine.got(None, *use).ended
    assert (ended.status, ended.consumed, ended.tokens) == ("aborted", 0, prompt)
    assert not ended.saved and not ended.prompt_saved
    engine.memory.release(*use[1:])
