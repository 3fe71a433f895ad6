"""A state-tuned model, its head tied to the embedding, against the official implementation."""

from __future__ import annotations

import pytest
import random_checkpoint
import torch
from safetensors.torch import load_file, save_file

from rwkv_server.model import weights

CONFIG = random_checkpoint.WORLD
PROMPTS = [[7], list(range(300, 340)), [65529, 1, 2]]


@pytest.fixture(scope="module")
def states():
    generator = torch.Generator().manual_seed(5)
    shapes = weights.initial_states(CONFIG)
    return {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def tuned(states, tmp_path_factory):
    model = tmp_path_factory.mktemp("tuned") / "model"
    random_checkpoint.write_checkpoint(model, CONFIG, seed=4)
    file = model / "model.safetensors"
    save_file(load_file(file) | states, file)
    return model


@pytest.fixture(scope="module")
def engine(tuned):
    import inproc_engine

    return inproc_engine.Engine(tuned)


@pytest.fixture(scope="module")
def official(tuned, tmp_path_factory):
    import oracle

    return oracle.Official(tuned, tmp_path_factory.mktemp("oracle")).model


def expected(official, prompt, tokens, states):
    """The official logits that each of `tokens` is chosen from, started from `states`."""
    start = official.generate_zero_state()
    for layer, state in enumerate(states):
        start[3 * layer + 1] = state.clone()
    rows, _ = official.forward(prompt + tokens[:-1], start, full_output=True)
    return rows[len(prompt) - 1 :]


def test_every_request_starts_from_the_tuned_state(engine, official, states):
    # Twice, so that slots are used again.
    for _ in range(2):
        for prompt, answer in zip(PROMPTS, engine.generate(PROMPTS, max_tokens=12), strict=True):
            wanted = expected(official, prompt, answer.tokens, states.values())
            assert wanted.argmax(-1).tolist() == answer.tokens
            cosine = torch.nn.functional.cosine_similarity(wanted.double(), answer.logits.double())
            assert float(cosine.min()) > 0.999999


def test_started_from_nothing_or_the_other_way_round_it_would_say_something_else(
    engine, official, states
):
    tokens = engine.generate(PROMPTS, max_tokens=12)[1].tokens
    for others in ([], [state.transpose(1, 2) for state in states.values()]):
        assert expected(official, PROMPTS[1], tokens, others).argmax(-1).tolist() != tokens
