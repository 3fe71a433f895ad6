"""A state that went through a slot goes on as if nothing had been: token for token, at fp32."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from state_engine import Got, StateEngine

TURN = 24


def a_prompt(length: int, seed: int = 1) -> list[int]:
    dice = random.Random(seed * 1000 + length)
    return [dice.randrange(1, 256) for _ in range(length)]


def test_a_resumed_state_goes_on_as_if_uninterrupted(states: StateEngine) -> None:
    from state_engine import Ask

    prompt = a_prompt(40)
    (whole,) = states.plain([prompt], 3 * TURN)
    (first,) = states.run(Ask(prompt, TURN, save=True))
    assert first.tokens == whole[:TURN]
    assert first.ended.status == "length_capped" and first.ended.saved
    assert first.ended.tokens == prompt + first.tokens
    assert first.ended.consumed == len(prompt) + TURN - 1
    (second,) = states.run(Ask(first.tokens[-1:], TURN, load=first.save, save=True))
    (third,) = states.run(Ask(second.tokens[-1:], TURN, load=second.save))
    assert first.tokens + second.tokens + third.tokens == whole
    states.memory.release(first.save, second.save)


def test_forks_of_one_state_in_one_batch_with_strangers(states: StateEngine) -> None:
    from state_engine import Ask

    prompt = a_prompt(70)
    (first,) = states.run(Ask(prompt, TURN, save=True))
    text, pending = prompt + first.tokens, first.tokens[-1:]
    news = [a_prompt(length, seed=2) for length in (1, 5, 40, 2)]
    strangers = [a_prompt(length, seed=3) for length in (1, 33, 90)]
    wanted = states.plain([*(text + new for new in news), *strangers], TURN)
    asks = [Ask(pending + new, TURN, load=first.save) for new in news]
    mixed = [asks[0], Ask(strangers[0], TURN), *asks[1:], *(Ask(s, TURN) for s in strangers[1:])]
    got = states.run(*mixed)
    forks, others = [got[0], *got[2:5]], [got[1], *got[5:]]
    assert [g.tokens for g in (*forks, *others)] == wanted
    states.memory.release(first.save)


@pytest.mark.parametrize("length", [1, 2, 31, 32, 33, 150])
def test_the_state_after_the_prompt(states: StateEngine, length: int) -> None:
    """Also where the prompt takes several steps, and other requests run in them."""
    from state_engine import Ask

    prompt = a_prompt(length, seed=4)
    (whole,) = states.plain([prompt], TURN)
    got, *_ = states.run(Ask(prompt, TURN, at_prompt=True), Ask(a_prompt(60), TURN))
    assert got.ended.prompt_saved and not got.ended.saved
    (again,) = states.run(Ask(whole[:3], TURN - 3, load=got.at_prompt, at_prompt=True))
    assert again.tokens == whole[3:] and again.ended.prompt_saved
    (last,) = states.run(Ask(whole[3:4], TURN - 4, load=again.at_prompt))
    assert last.tokens == whole[4:]
    states.memory.release(got.at_prompt, again.at_prompt)


def test_long_texts_after_a_state_are_read_in_several_steps(states: StateEngine) -> None:
    from state_engine import Ask

    first, second = a_prompt(100), a_prompt(130, seed=5)
    (whole,) = states.plain([first + second], TURN)
    (saved,) = states.run(Ask(first, 1, at_prompt=True))
    (got,) = states.run(Ask(second, TURN, load=saved.at_prompt))
    assert got.tokens == whole
    states.memory.release(saved.at_prompt)


@pytest.mark.parametrize("engine", ["states", "states_ahead"])
@pytest.mark.parametrize("after", [1, 3, 9])
def test_a_preempted_request_starts_from_its_state_again(
    request: pytest.FixtureRequest, engine: str, after: int
) -> None:
    import vllm
    from state_engine import Ask

    if engine == "states_ahead" and vllm.__version__.startswith("0.18."):
        pytest.skip("0.18 never takes up a request that was pushed out while steps ran ahead")
    states: StateEngine = request.getfixturevalue(engine)
    prompt, new = a_prompt(20), a_prompt(70, seed=6)
    (whole,) = states.plain([prompt + new], 2 * TURN)
    (saved,) = states.run(Ask(prompt, 1, at_prompt=True))
    ask = Ask(new, TURN, load=saved.at_prompt, save=True, at_prompt=True)
    name, use = states.add(ask)
    outputs = {}
    for _ in range(3):
        for _ in range(after):
            outputs |= {output.request_id: output for output in states.llm.step()}
        states.preempt()
    outputs |= states.drain()
    got = states.got(outputs[name], *use)
    assert got.tokens == whole[:TURN] and got.ended.saved and got.ended.prompt_saved
    pending = got.ended.tokens[got.ended.consumed :]
    (on,) = states.run(Ask(pending or [1], TURN, load=got.save))
    if pending:
        assert on.tokens == whole[TURN:]
    (again,) = states.run(Ask(whole[:1], TURN - 1, load=got.at_prompt))
    assert again.tokens == whole[1:TURN]
    states.memory.release(saved.at_prompt, got.save, got.at_prompt)


def check_failed(got: Got, reason: str) -> None:
    assert got.tokens == [] and got.reason == "error"
    assert got.ended.status == "error" and reason in str(got.ended.failed)
    assert not got.ended.saved and not got.ended.prompt_saved


@pytest.mark.parametrize("engine", ["states", "states_ahead"])
def test_a_state_that_is_gone_fails_its_request_only(
    request: pytest.FixtureRequest, engine: str
) -> None:
    from state_engine import Ask

    states: StateEngine = request.getfixturevalue(engine)
    stranger, prompt = a_prompt(50, seed=7), a_prompt(40, seed=8)
    (wanted,) = states.plain([stranger], TURN)
    (saved,) = states.run(Ask(prompt, 1, at_prompt=True))
    states.memory.give_away(saved.at_prompt)
    asks = [Ask([1, 2], TURN, load=saved.at_prompt, save=True, at_prompt=True)]
    gone, other = states.run(*asks, Ask(stranger, TURN))
    check_failed(gone, "belongs to somebody else by now")
    assert other.tokens == wanted
    assert states.plain([stranger], TURN) == [wanted]
    states.memory.release(gone.save, gone.at_prompt)


def test_a_load_with_nothing_to_read_after_it_fails(states: StateEngine) -> None:
    from state_engine import Ask

    (saved,) = states.run(Ask(a_prompt(10), 1, at_prompt=True))
    (got,) = states.run(Ask([], TURN, load=saved.at_prompt, save=True))
    check_failed(got, "no token comes after the loaded state")
    states.memory.release(saved.at_prompt, got.save)


@pytest.mark.parametrize("params", [{}, {"rwkv_transfer": "{}", "rwkv_signature": "0"}], ids=str)
@pytest.mark.parametrize("length", [1, 40])
def test_parameters_that_nobody_signed_fail_their_request_only(
    states: StateEngine, params: dict[str, str], length: int
) -> None:
    from inproc_engine import greedy

    stranger = a_prompt(50, seed=7)
    (wanted,) = states.plain([stranger], TURN)
    bad = greedy(TURN)
    bad.extra_args = {"kv_transfer_params": params}
    states.llm.add_request("bad", {"prompt_token_ids": a_prompt(length)}, bad)
    states.llm.add_request("good", {"prompt_token_ids": stranger}, greedy(TURN))
    outputs = states.drain()
    assert outputs["bad"].outputs[0].finish_reason == "error"
    assert list(outputs["bad"].outputs[0].token_ids) == []
    assert list(outputs["good"].outputs[0].token_ids) == wanted


def test_a_slot_that_was_given_away_is_not_written(states: StateEngine) -> None:
    from state_engine import Ask

    prompt = a_prompt(30)
    (wanted,) = states.plain([prompt], TURN)
    name, use = states.add(Ask(prompt, TURN, save=True, at_prompt=True))
    _, save, at_prompt = use
    owners = [states.memory.give_away(slot) for slot in (save, at_prompt)]
    for owner in owners:
        owner.view[:] = b"\7" * len(owner.view)
    got = states.got(states.drain()[name], *use)
    assert got.tokens == wanted and not got.ended.saved and not got.ended.prompt_saved
    assert all(set(owner.view) == {7} for owner in owners)
    states.memory.release(*owners)


def test_requests_without_parameters_are_never_looked_at(states: StateEngine) -> None:
    scheduler = states.core.scheduler.connector._scheduler
    states.plain([a_prompt(40)], 4)
    assert scheduler._active == {} and scheduler._ids == set()
