import random

import numpy as np
import pytest

from tiny_recall import chat, chitchat, dialogues, kinds, probes, rows, values


def turns(seed: int, count: int) -> list[dialogues.Turn]:
    generator = dialogues.generate_turns(random.Random(seed))
    return [turn for turn, _ in zip(generator, range(count), strict=False)]


def test_same_seed_gives_the_same_rows_and_another_seed_does_not() -> None:
    first, weights = rows.build_batch(random.Random(5), 4, 300)
    again, _ = rows.build_batch(random.Random(5), 4, 300)
    other, _ = rows.build_batch(random.Random(6), 4, 300)
    assert first.shape == weights.shape == (4, 300)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("seed", range(20))
def test_row_is_exactly_what_the_chat_template_renders(seed: int) -> None:
    ids, _ = rows.build_row(random.Random(seed), 500)
    rng = random.Random(seed)
    system = dialogues.generate_system_prompt(rng)
    told = []
    for turn in dialogues.generate_turns(rng):
        told.append(turn)
        if turn.ends or len(told) == 20:
            break
    messages = [] if system is None else [{"role": "system", "content": system}]
    messages += probes.render_messages(told)
    rendered = rows.encode(chat.render(messages, add_generation_prompt=False))[:500]
    until = min(len(rendered), 500)
    assert ids[:until].tolist() == rendered[:until]


def test_goodbye_ends_the_document_and_the_rest_is_padding_without_weight() -> None:
    for seed in range(200):
        ids, weights = rows.build_row(random.Random(seed), 600)
        if rows.END_OF_DOCUMENT in ids:
            end = ids.tolist().index(rows.END_OF_DOCUMENT)
            assert rows.decode(ids[:end]).endswith(f"Assistant: {chitchat.GOODBYE_REPLY}")
            assert weights[end] == dialogues.TEXT
            assert not ids[end:].any() and not weights[end + 1 :].any()
            return
    pytest.fail("no dialogue ended in 200")


def test_value_of_an_answer_weighs_most() -> None:
    ids, weights = rows.build_row(random.Random(2), 600)
    values = set(
        "".join(
            chr(i - 1) if weight == dialogues.ANSWER_VALUE else "|"
            for i, weight in zip(ids.tolist(), weights.tolist(), strict=True)
        ).split("|")
    ) - {""}
    assert values and all(f"{value}." in rows.decode(ids) for value in values)
    assert weights.max() == dialogues.ANSWER_VALUE


@pytest.mark.parametrize("kind", kinds.KINDS, ids=lambda kind: kind.name)
def test_answer_is_the_newest_value_and_unknown_before_it_is_told(kind: kinds.Kind) -> None:
    rng = random.Random(1)
    memory = dialogues.Memory(species="dog")
    assert dialogues.build_question(rng, memory, kind.name).reply_text.startswith(
        "You have not told me"
    )
    for value in ("abcde", "fghij"):
        told = dialogues.build_statement(rng, memory, {kind.name: value}, varied=False)
        assert value in told.user and value in told.reply_text
        asked = dialogues.build_question(rng, memory, kind.name, varied=False)
        assert asked.reply_text == kind.answer.replace("{v}", value).replace("{s}", "dog")


def test_lower_case_message_is_answered_in_the_case_it_was_told() -> None:
    seen = set()
    for seed in range(300):
        rng, memory = random.Random(seed), dialogues.Memory(species="dog")
        told = dialogues.build_statement(rng, memory, {"name": "Nora"})
        answer = dialogues.build_question(rng, memory, "name").reply_text
        assert memory.told["name"] in told.user
        assert answer == f"Your name is {memory.told['name']}."
        seen.add(memory.told["name"])
    assert seen == {"Nora", "nora", "NORA"}


def test_two_facts_of_one_sentence_are_both_remembered() -> None:
    memory = dialogues.Memory(species="cat")
    facts = {"name": "Nora", "city": "Oslo"}
    told = dialogues.build_statement(random.Random(0), memory, facts, varied=False)
    assert told.reply_text == "Nice to meet you, Nora. Noted, you live in Oslo."
    assert memory.told == facts


def test_wordings_of_the_demo_are_in_the_data() -> None:
    phrases = {phrase for said, _ in chitchat.CHITCHAT for phrase in said}
    assert {"How are you?", "What can you do?", "Tell me a joke."} <= phrases
    name = kinds.BY_NAME["name"]
    assert {"What is my name?", "What's my name?", "Do you remember my name?"} <= set(
        name.questions
    )
    assert "My name is {v}." in name.statements and "Hello, " in kinds.GREETINGS


def test_no_phrase_of_small_talk_has_two_replies() -> None:
    phrases = [phrase for said, _ in chitchat.CHITCHAT for phrase in said]
    questions = [text for kind in kinds.KINDS for text in kind.questions]
    assert len(phrases) == len(set(phrases))
    assert not set(phrases) & set(questions)


def test_generated_text_never_breaks_the_turn_format() -> None:
    for turn in turns(3, 300):
        for text in (turn.user, turn.reply_text):
            assert text == text.strip() and "\n" not in text and text


def test_harder_dialogues_ask_for_older_facts_and_tell_words_that_resemble_each_other() -> None:
    hard = dialogues.Mix(hard=True)
    language = values.draw_language(random.Random(5))
    words = {language.draw_word(random.Random(seed)) for seed in range(200)}
    assert all(any(word.startswith(onset) for onset in language.onsets) for word in words)
    first, _ = rows.build_batch(random.Random(1), 2, 400, hard)
    again, _ = rows.build_batch(random.Random(1), 2, 400, hard)
    plain, _ = rows.build_batch(random.Random(1), 2, 400)
    assert np.array_equal(first, again) and not np.array_equal(first, plain)
