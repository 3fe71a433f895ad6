"""What a reply is doesn't depend on the pieces that it comes in."""

from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rwkv_server.tokenizer.replies import Call, Calls, Thinking, find_calls

CALL = '{"name": "weather", "arguments": {"city": "Köln"}}'
FENCED = f"```json\n{CALL}\n```"
# Code in an argument has fences of its own.
CODE = '{"name": "weather", "arguments": {"city": "```py\\n1\\n```", "n": [1]}}'
WRITTEN = Call("weather", '{"city": "```py\\n1\\n```", "n": [1]}')
WEATHER = Call("weather", '{"city": "Köln"}')
PIECES = st.lists(
    st.sampled_from(
        ["`", "```", "json", "\n", " ", "a", "你", "{", "}", '{"name": ', '"weather"', CALL, FENCED,
         CODE, '"', "\\\\", "-Infinity", 
         "</", "think", ">", "</think>", "[", "]", "User:"]
    )
)  # fmt: skip


def read(text, names=("weather",), cuts=()):
    """All items of a reply cut at `cuts`, words joined."""
    reader = Calls(names)
    items = []
    places = [0, *sorted(cuts), len(text)]
    for start, end in itertools.pairwise(places):
        items += reader.feed(text[start:end])
    items += reader.finish()
    joined = []
    for item in items:
        if isinstance(item, str) and joined and isinstance(joined[-1], str):
            joined[-1] += item
        else:
            joined.append(item)
    return joined


@pytest.mark.parametrize(
    ("text", "items"),
    [
        (" Hello. ", ["Hello. "]),
        (FENCED, [WEATHER]),
        (f" {FENCED}\n", [WEATHER]),
        (CALL, [WEATHER]),
        (f"[{CALL}, {CALL}]", [WEATHER, WEATHER]),
        (f"{FENCED}\n{FENCED}", [WEATHER, WEATHER]),
        (f"I look.\n{FENCED}", ["I look.", WEATHER]),
        (f"```\n{CALL}\n```", [WEATHER]),
        (f"```json\n{CALL}", [WEATHER]),
        (FENCED.replace("weather", "other"), [FENCED.replace("weather", "other")]),
        ('```json\n{"a": 1}\n``` so', ['```json\n{"a": 1}\n``` so']),
        ("```python\nprint(1)\n```\nand\n" + FENCED, ["```python\nprint(1)\n```\nand", WEATHER]),
        ('{"a": 1}', ['{"a": 1}']),
        ('```json\n{"name": "weather", "argu', ['```json\n{"name": "weather", "argu']),
        (f"So:\n```json\n{CODE}\n```\nDone.", ["So:", WRITTEN, "Done."]),
        (f"```json\n{CODE}", [WRITTEN]),
        (f"```json\n{CODE[:30]}", [f"```json\n{CODE[:30]}"]),
        (f"```json\n{CALL} x\n```", [f"```json\n{CALL} x\n```"]),
        (f"```json\n{CALL[:-2]},\n```\n{FENCED}", [f"```json\n{CALL[:-2]},\n```", WEATHER]),
        ("```\n```\n" + FENCED, ["```\n```", WEATHER]),
        ("a `b` c``", ["a `b` c``"]),
        ("", []),
    ],
)
def test_words_and_calls(text, items):
    assert read(text) == items
    assert read(text, cuts=range(len(text))) == items


def test_without_tools_all_is_words():
    assert read(FENCED, names=()) == [FENCED]


@given(PIECES, st.lists(st.integers(0, 200)))
def test_pieces_dont_matter(parts, cuts):
    text = "".join(parts)
    cuts = [cut for cut in cuts if cut <= len(text)]
    assert read(text, cuts=cuts) == read(text)


@given(PIECES)
def test_nothing_is_lost_but_calls_and_white_space(parts):
    text = "".join(parts)
    if not any(isinstance(item, Call) for item in read(text)):
        assert "".join(read(text)) == text.lstrip()


def think(text, cuts=()):
    thinking, thought, said = Thinking(), "", ""
    places = [0, *sorted(cuts), len(text)]
    for start, end in itertools.pairwise(places):
        more, words = thinking.feed(text[start:end])
        thought, said = thought + more, said + words
    return thought + thinking.finish(), said


@pytest.mark.parametrize(
    ("text", "thought", "said"),
    [
        (">\nI add.\n</think>\nTwo.", "I add.", "\nTwo."),
        (">I add.</think>Two.", "I add.", "Two."),
        (">\nI add </thin", "I add </thin", ""),
        (">\n</think>\nTwo", "", "\nTwo"),
        ("></think>a</think>b", "", "a</think>b"),
        ("", "", ""),
    ],
)
def test_thinking(text, thought, said):
    assert think(text) == (thought, said)
    assert think(text, range(len(text))) == (thought, said)


@given(PIECES, st.lists(st.integers(0, 200)))
def test_pieces_of_thoughts_dont_matter(parts, cuts):
    text = ">" + "".join(parts)
    assert think(text, [cut for cut in cuts if cut <= len(text)]) == think(text)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(),
                    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))  # fmt: skip
def test_any_json_is_a_call_or_not(value):
    assert find_calls(value, ["weather"]) == []
    called = find_calls({"name": "weather", "arguments": {"x": value}}, ["weather"])
    assert json.loads(called[0].arguments) == {"x": value}
