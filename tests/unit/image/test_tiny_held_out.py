import ast
import itertools
import pathlib
import random

import pytest

from tiny_recall import held_out, kinds, probes, values

PACKAGE = pathlib.Path(values.__file__).parent
TRAINING = (
    "train",
    "rows",
    "dialogues",
    "values",
    "words",
    "kinds",
    "chitchat",
    "initial",
    "model",
    "wkv",
)
NAMES = [kind.name for kind in kinds.KINDS]


def imports(module: str) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse((PACKAGE / f"{module}.py").read_text())):
        if isinstance(node, ast.ImportFrom):
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name.removeprefix("tiny_recall.") for name in found if name.startswith("tiny_recall")}


@pytest.mark.parametrize("module", TRAINING)
def test_training_module_reads_training_modules_only(module: str) -> None:
    assert imports(module) <= set(TRAINING)


@pytest.mark.parametrize("kind", NAMES)
def test_training_never_makes_a_held_out_value_and_the_evaluation_only_those(kind: str) -> None:
    rng = random.Random(11)
    trained = {values.draw_value(rng, kind).lower() for _ in range(4000)}
    evaluated = {held_out.draw_value(rng, kind).lower() for _ in range(1000)}
    assert not any(values.is_held_out(value) for value in trained)
    assert all(values.is_held_out(value) for value in evaluated)
    assert not trained & evaluated
    assert len(evaluated) > 200


def test_hash_class_ignores_letter_case_and_takes_about_a_third() -> None:
    letters = ["".join(pair) for pair in itertools.product("abcdefghijklmnopqrst", repeat=2)]
    assert all(values.is_held_out(x) == values.is_held_out(x.upper()) for x in letters)
    assert 0.25 < sum(map(values.is_held_out, letters)) / len(letters) < 0.42


@pytest.mark.parametrize("kind", [name for name in NAMES if name != "code"])
def test_word_lists_have_no_word_in_common(kind: str) -> None:
    assert not set(held_out.list_words(kind)) & set(values.list_words(kind))
    assert len(held_out.list_words(kind)) >= 20


def test_codes_have_other_digit_counts() -> None:
    assert not set(held_out.CODE_DIGITS) & set(values.CODE_DIGITS)
    rng = random.Random(1)
    assert {len(held_out.draw_value(rng, "code")) for _ in range(50)} == set(held_out.CODE_DIGITS)


def test_probes_cover_every_distance_and_end_with_the_question() -> None:
    asked = probes.build_probes(seed=1, count=64)
    assert {probe.distance for probe in asked} == set(range(1, 9))
    assert {probe.overwritten for probe in asked} == {True, False}
    for probe in asked:
        turns = [m for m in probe.messages if m["role"] != "system"]
        tellings = [
            index for index, m in enumerate(turns[:-1])
            if m["role"] == "user" and probe.fact.lower() in m["content"].lower()
        ]  # fmt: skip
        assert turns[-1]["role"] == "user"
        assert (len(turns) - 1 - tellings[-1]) / 2 == probe.distance
        assert probe.fact.lower() in probe.expected.lower()


def test_controls_never_tell_the_fact() -> None:
    for probe in probes.build_probes(seed=1, count=64, control=True):
        assert all(probe.fact.lower() not in m["content"].lower() for m in probe.messages)
        assert probe.expected.startswith("You have not told me")


def test_probes_of_a_seed_are_the_same_and_of_another_seed_are_not() -> None:
    assert probes.build_probes(3, 8) == probes.build_probes(3, 8)
    assert probes.build_probes(3, 8) != probes.build_probes(4, 8)


def test_values_of_a_random_language_are_never_held_out_either() -> None:
    rng = random.Random(3)
    for _ in range(100):
        language = values.draw_language(rng)
        drawn = [values.draw_value(rng, "pet", language) for _ in range(20)]
        assert not any(values.is_held_out(value) for value in drawn)
