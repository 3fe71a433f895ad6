"""Values of the evaluation only: other word lists, another syllable scheme, other digit counts.

No training module may import this one. On top of that every value here is of the hash class that
training leaves out (``values.is_held_out``), so no training rule could have made it by chance.
"""

import random

from tiny_recall import held_out_words, values, words

CODE_DIGITS = (5, 7)

_BLOCKS = {
    "name": held_out_words.NAMES,
    "city": held_out_words.CITIES,
    "color": held_out_words.COLORS,
    "food": held_out_words.FOODS,
    "animal": held_out_words.ANIMALS,
    "hobby": held_out_words.HOBBIES,
    "pet": held_out_words.PETS,
}
_ONSETS = tuple("br cl dr fl gr kr pl sk sl st str th tr sh ch".split())
_NUCLEI = tuple("ai au ea ee ie oa oo ou".split())
_CODAS = tuple("ck ft ld lm mp nd ng nk rn rt sh sk st th".split())
_CAPITALISED = frozenset({"name", "city", "pet"})


def list_words(kind: str) -> tuple[str, ...]:
    """Return the words of a kind that training lists don't have and its hash class excludes."""
    known = {word.lower() for word in values.list_words(kind)}
    candidates = words.split_words(_BLOCKS[kind])
    return tuple(
        word for word in candidates if values.is_held_out(word) and word.lower() not in known
    )


def draw_value(rng: random.Random, kind: str) -> str:
    """Draw a value of a kind: for codes digits, otherwise half words and half syllables."""
    if kind != "code" and rng.random() < 0.5:
        return rng.choice(list_words(kind))
    while True:
        value = _digits(rng) if kind == "code" else _syllables(rng)
        if values.is_held_out(value):
            return value.capitalize() if kind in _CAPITALISED else value


def _digits(rng: random.Random) -> str:
    return "".join(rng.choices("0123456789", k=rng.choice(CODE_DIGITS)))


def _syllables(rng: random.Random) -> str:
    """Clusters around double vowels: training's own syllables are one consonant and one vowel."""
    first = rng.choice(_ONSETS) + rng.choice(_NUCLEI) + rng.choice(_CODAS)
    return first + (rng.choice(_NUCLEI) + rng.choice(_CODAS) if rng.random() < 0.4 else "")
