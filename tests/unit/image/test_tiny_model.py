import pathlib
import random

import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from tiny_recall import evaluate, held_out, reference, rows

FOLDER = pathlib.Path(reference.__file__).parents[1] / "models" / "tiny-recall"


@pytest.fixture(scope="module")
def network() -> reference.Reference:
    return reference.Reference(safetensors_numpy.load_file(FOLDER / "model.safetensors"))


def test_name_told_in_turn_one_is_known_in_turn_four(network: reference.Reference) -> None:
    rng = random.Random(12)
    names = [held_out.draw_value(rng, "name") for _ in range(6)]
    openings = ("Hello, my name is {}.", "Hi! My name is {} and I live in Oslo.", "I'm {}.")
    questions = ("What is my name?", "What's my name?", "Do you remember my name?")
    conversations = [
        [openings[i % 3].format(name), "How are you?", "Tell me a joke.", questions[i // 2]]
        for i, name in enumerate(names)
    ]
    replies = evaluate.converse(network, conversations, evaluate.Sampling())
    assert [said[-1] for said in replies] == [f" Your name is {name}." for name in names]


def test_name_that_was_not_told_is_not_known(network: reference.Reference) -> None:
    conversation = ["Hello!", "What can you do?", "What is my name?"]
    (replies,) = evaluate.converse(network, [conversation], evaluate.Sampling())
    assert replies[-1] == " You have not told me your name."


def test_goodbye_is_followed_by_the_end_of_the_document(network: reference.Reference) -> None:
    state = network.zero_state(1)
    chat = "User: Hello, my name is Nora.\n\nAssistant: Nice to meet you, Nora.\n\nUser: Bye.\n\n"
    for i in rows.encode(chat + "Assistant: Goodbye!"):
        logits = network.step(np.array([i]), state)
    assert int(logits.argmax()) == rows.END_OF_DOCUMENT
