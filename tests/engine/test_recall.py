"""The bundled model through vLLM: it recalls what it was told, and says so when it was not."""

from __future__ import annotations

import collections
import random

import pytest

from tiny_recall import evaluate, files, held_out, probes

pytestmark = pytest.mark.engine

SEED = 2026  # that of the model card's figures; chats are drawn from it while the test runs
COUNT = 200


@pytest.fixture(scope="session")
def ask(recall_engine: object):
    import recall_chats

    return lambda chats, sampling=None: recall_chats.ask(recall_engine, chats, sampling)


def test_values_drawn_now_are_recalled_from_one_to_eight_turns_back(ask) -> None:
    asked = probes.build_probes(SEED, COUNT)
    replies = ask([probe.messages for probe in asked])
    by_distance = collections.Counter(
        probe.distance
        for probe, reply in zip(asked, replies, strict=True)
        if evaluate.is_right(probe, reply)
    )
    wrong = [
        (probe.distance, probe.expected, reply)
        for probe, reply in zip(asked, replies, strict=True)
        if not evaluate.is_right(probe, reply)
    ]
    assert evaluate.share(asked, replies) >= 0.95, (SEED, wrong)
    assert min(by_distance[distance] for distance in range(1, 9)) >= 0.8 * COUNT / 8, (SEED, wrong)


def test_without_the_fact_it_says_so_and_does_not_guess(ask) -> None:
    controls = probes.build_probes(SEED, COUNT, control=True)
    replies = ask([probe.messages for probe in controls])
    not_told = sum("You have not told me" in reply for reply in replies)
    guessed = sum(map(evaluate.guesses_fact, controls, replies))
    assert not_told >= 0.95 * COUNT, SEED
    assert guessed <= 0.01 * COUNT, SEED


def test_conversation_with_its_own_replies_sent_back(ask) -> None:
    rng = random.Random(SEED)
    names = [held_out.draw_value(rng, "name") for _ in range(24)]
    said = ("Hello, my name is {}.", "How are you?", "Tell me a joke.", "What is my name?")
    chats: list[list[probes.Message]] = [[] for _ in names]
    for text in said:
        for chat, name in zip(chats, names, strict=True):
            chat.append({"role": "user", "content": text.format(name)})
        for chat, reply in zip(chats, ask(chats), strict=True):
            chat.append({"role": "assistant", "content": reply})
    right = [
        chat[-1]["content"] == f" Your name is {name}."
        for chat, name in zip(chats, names, strict=True)
    ]
    assert sum(right) >= 23, (SEED, names, right)


def test_reply_ends_at_the_line_end_or_the_end_of_the_document(recall_engine) -> None:
    from vllm import SamplingParams

    chats = [[{"role": "user", "content": text}] for text in ("How are you?", "Goodbye.")]
    sampling = SamplingParams(temperature=0, max_tokens=60)
    outputs = recall_engine.chat(chats, sampling, use_tqdm=False)
    ended = [output.outputs[0] for output in outputs]
    assert [end.finish_reason for end in ended] == ["stop", "stop"]
    assert [end.token_ids[-1] for end in ended] == [files.LINE_END, 0]
    assert [end.text for end in ended] == [" I am fine, thank you.", " Goodbye!"]


def test_defaults_of_the_model_recall_as_well(recall_engine, ask) -> None:
    asked = probes.build_probes(SEED + 1, 40)
    defaults = recall_engine.get_default_sampling_params()
    assert (defaults.temperature, defaults.top_p) == (0.3, 0.3)
    defaults.max_tokens = 120
    replies = ask([probe.messages for probe in asked], defaults)
    assert evaluate.share(asked, replies) >= 0.9, SEED


@pytest.mark.parametrize(
    "text", ["Zoë 李 👩‍👩‍👧 \u0000 \ufeff", "<|endoftext|>", "\n\nUser: a\tb\r\n "]
)
def test_tokenizer_gives_every_byte_its_id_and_the_text_back(recall_engine, text: str) -> None:
    tokenizer = recall_engine.get_tokenizer()
    ids = tokenizer.encode(text)
    assert ids == [byte + 1 for byte in text.encode()]
    assert tokenizer.decode(ids) == text
    assert (tokenizer.eos_token_id, tokenizer.bos_token) == (0, None)


def test_template_in_the_engine_is_the_one_of_the_trainer(recall_engine) -> None:
    from tiny_recall import chat

    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi\n\n\nthere "},
        {"role": "assistant", "content": " Hello! How can I help?"},
        {"role": "user", "content": "What is my name?"},
    ]
    rendered = recall_engine.get_tokenizer().apply_chat_template(
        messages, tokenize=False, add_generation_prompt=True
    )
    assert rendered == chat.render(messages)
