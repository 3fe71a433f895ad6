"""Measures recall of a trained model on values that training never used.

Chats run in lock-step through ``reference.py``; the engine's own test asks the same probes.
"""

import collections
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from safetensors import numpy as safetensors_numpy

from tiny_recall import chat, probes, reference, rows

STOPS = (0, 11)
MAX_REPLY = 120


@dataclass(frozen=True)
class Sampling:
    """Greedy at temperature 0."""

    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


def evaluate(folder: pathlib.Path, count: int, seed: int) -> dict[str, object]:
    """Return the measured figures of the model in a folder."""
    weights = safetensors_numpy.load_file(folder / "model.safetensors")
    network = reference.Reference(weights)
    asked = probes.build_probes(seed, count)
    controls = probes.build_probes(seed, count, control=True)
    figures: dict[str, object] = {"probes": count, "seed": seed}
    replies = generate(network, [chat.render(probe.messages) for probe in asked], Sampling())
    figures["recall"] = share(asked, replies)
    figures["recall_by_distance"] = by_group(asked, replies, "distance")
    figures["recall_by_kind"] = by_group(asked, replies, "kind")
    figures["recall_by_overwritten"] = by_group(asked, replies, "overwritten")
    figures["misses"] = [
        [probe.distance, probe.expected, reply]
        for probe, reply in zip(asked, replies, strict=True)
        if not is_right(probe, reply)
    ][:20]
    answers = generate(network, [chat.render(probe.messages) for probe in controls], Sampling())
    figures["control_not_told"] = share(controls, answers)
    figures["control_right_guess"] = sum(map(guesses_fact, controls, answers)) / count
    for sampling in (Sampling(0.3, 0.3), Sampling(0.7), Sampling(1.0)):
        sampled = generate(network, [chat.render(probe.messages) for probe in asked], sampling)
        key = f"recall_temperature_{sampling.temperature}_top_p_{sampling.top_p}"
        figures[key] = share(asked, sampled)
    return figures


def is_right(probe: probes.Probe, reply: str) -> bool:
    """Tell whether the whole reply is the expected one."""
    return reply.strip() == probe.expected


def guesses_fact(probe: probes.Probe, reply: str) -> bool:
    """Tell whether a reply contains the fact, in any letter case."""
    return probe.fact.lower() in reply.lower()


def share(asked: Sequence[probes.Probe], replies: Sequence[str]) -> float:
    """Return the share of right replies."""
    return sum(map(is_right, asked, replies)) / len(asked)


def by_group(
    asked: Sequence[probes.Probe], replies: Sequence[str], attribute: str
) -> dict[str, float]:
    """Return the share of right replies for each value of a probe's attribute."""
    groups: dict[str, list[bool]] = collections.defaultdict(list)
    for probe, reply in zip(asked, replies, strict=True):
        groups[str(getattr(probe, attribute))].append(is_right(probe, reply))
    return {key: round(sum(group) / len(group), 4) for key, group in sorted(groups.items())}


def generate(network: reference.Reference, prompts: Sequence[str], sampling: Sampling) -> list[str]:
    """Continue every prompt up to a stop id; the stop is not in the reply."""
    rng = np.random.default_rng(sampling.seed)
    pending = [rows.encode(prompt) for prompt in prompts]
    replies: list[list[int]] = [[] for _ in prompts]
    done = [False] * len(prompts)
    state = network.zero_state(len(prompts))
    position = 0
    while not all(done):
        known = [ids[min(position, len(ids) - 1)] for ids in pending]
        logits = network.step(np.array(known), state)
        position += 1
        for index, ids in enumerate(pending):
            if done[index] or position < len(ids):
                continue
            chosen = _choose(logits[index], sampling, rng)
            if chosen in STOPS or len(replies[index]) == MAX_REPLY:
                done[index] = True
            else:
                replies[index].append(chosen)
                ids.append(chosen)
    return [rows.decode(ids) for ids in replies]


def converse(
    network: reference.Reference, conversations: Sequence[Sequence[str]], sampling: Sampling
) -> list[list[str]]:
    """Hold conversations of equally many user turns; the model sees its own earlier replies."""
    chats: list[list[probes.Message]] = [[] for _ in conversations]
    for turn in zip(*conversations, strict=True):
        for messages, text in zip(chats, turn, strict=True):
            messages.append({"role": "user", "content": text})
        replies = generate(network, [chat.render(messages) for messages in chats], sampling)
        for messages, reply in zip(chats, replies, strict=True):
            messages.append({"role": "assistant", "content": reply})
    return [[m["content"] for m in messages if m["role"] == "assistant"] for messages in chats]


def _choose(logits: reference.Array, sampling: Sampling, rng: np.random.Generator) -> int:
    if sampling.temperature == 0:
        return int(logits.argmax())
    scaled = logits.astype(np.float64) / sampling.temperature
    chances = np.exp(scaled - scaled.max())
    chances /= chances.sum()
    order = np.argsort(-chances)
    ahead = np.cumsum(chances[order]) - chances[order]
    kept = order[ahead < sampling.top_p]
    return int(rng.choice(kept, p=chances[kept] / chances[kept].sum()))
