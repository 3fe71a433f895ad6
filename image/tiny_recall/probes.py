"""Questions for the evaluation: a chat up to a question, and the one right answer.

The wordings are those of training, every value comes from ``held_out.py``. Chats are lists of
messages as a client sends them, so that the same probes go through any engine.
"""

import random
from dataclasses import dataclass

from tiny_recall import dialogues, held_out, kinds

Message = dict[str, str]
MAX_DISTANCE = 8


@dataclass(frozen=True)
class Probe:
    """A chat that ends with a question; ``value`` is None in a control without the fact."""

    messages: tuple[Message, ...]
    kind: str
    expected: str
    fact: str
    distance: int
    overwritten: bool
    control: bool


def build_probes(seed: int, count: int, control: bool = False) -> list[Probe]:
    """Build probes at distances 1 to 8 in turn; a third of them overwrite an older value."""
    rng = random.Random(f"{seed}-{control}")
    return [
        build_probe(rng, distance=index % MAX_DISTANCE + 1, control=control)
        for index in range(count)
    ]


def build_probe(rng: random.Random, distance: int, control: bool = False) -> Probe:
    """Build a chat whose question comes ``distance`` turns after the newest telling of its fact.

    In a control the turns that would tell the fact are small talk.
    """
    kind = rng.choice(kinds.KINDS).name
    memory = dialogues.Memory(species=rng.choice(kinds.SPECIES))
    fact = held_out.draw_value(rng, kind)
    overwritten = rng.random() < 1 / 3
    turns = [_other_turn(rng, memory, kind) for _ in range(rng.randint(0, 1))]
    if overwritten:
        turns.append(_telling(rng, memory, kind, held_out.draw_value(rng, kind), control))
        turns.extend(_other_turn(rng, memory, kind) for _ in range(rng.randint(0, 1)))
    turns.append(_telling(rng, memory, kind, fact, control))
    turns.extend(_other_turn(rng, memory, kind) for _ in range(distance - 1))
    question = dialogues.build_question(rng, memory, kind, varied=rng.random() < 0.5)
    return Probe(
        messages=(
            *_system(rng),
            *render_messages(turns),
            {"role": "user", "content": question.user},
        ),
        kind=kind,
        expected=question.reply_text,
        fact=fact,
        distance=distance,
        overwritten=overwritten and not control,
        control=control,
    )


def render_messages(turns: list[dialogues.Turn]) -> list[Message]:
    """Return the messages of turns, replies as a client sends them back."""
    return [
        message
        for turn in turns
        for message in (
            {"role": "user", "content": turn.user},
            {"role": "assistant", "content": turn.reply_text},
        )
    ]


def _system(rng: random.Random) -> list[Message]:
    prompt = dialogues.generate_system_prompt(rng)
    return [] if prompt is None else [{"role": "system", "content": prompt}]


def _telling(
    rng: random.Random, memory: dialogues.Memory, kind: str, value: str, control: bool
) -> dialogues.Turn:
    if control:
        return dialogues.build_small_talk(rng)
    facts = {kind: value}
    if rng.random() < 0.2:
        other = rng.choice([k.name for k in kinds.KINDS if k.name != kind])
        facts[other] = held_out.draw_value(rng, other)
    return dialogues.build_statement(rng, memory, facts, varied=rng.random() < 0.5)


def _other_turn(rng: random.Random, memory: dialogues.Memory, kind: str) -> dialogues.Turn:
    """Small talk, another fact, or a question for another fact."""
    others = [k.name for k in kinds.KINDS if k.name != kind]
    pick = rng.random()
    if pick < 0.4:
        return dialogues.build_small_talk(rng)
    if pick < 0.7:
        other = rng.choice(others)
        return dialogues.build_statement(rng, memory, {other: held_out.draw_value(rng, other)})
    return dialogues.build_question(rng, memory, rng.choice(others))
