"""Values that training dialogues tell: list words, syllables, chimeras, random letters, digits.

A value whose hash falls into the held-out class is never made here, whatever rule produced it, so
that the evaluation can draw values of which training provably saw none.
"""

import functools
import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass

from tiny_recall import words

HELD_OUT_CLASSES = 3
LANGUAGE_SHARE = 0.45
CODE_DIGITS = (2, 3, 4, 4, 4, 6, 8)

_BLOCKS = {
    "name": words.NAMES,
    "city": words.CITIES,
    "color": words.COLORS,
    "food": words.FOODS,
    "animal": words.ANIMALS,
    "hobby": words.HOBBIES,
    "pet": words.PETS,
}
_CAPITALISED = frozenset({"name", "city", "pet"})
_CONSONANTS = "bcdfghjklmnpqrstvwxyz"
_VOWELS = "aeiou"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PASSWORD_CHARACTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ23456789-"
_ACCENTED = "áäåçéèíñóöøšúüžł"


def is_held_out(value: str) -> bool:
    """Tell whether a value belongs to the evaluation; letter case makes no difference."""
    digest = hashlib.blake2s(value.lower().encode()).digest()
    return digest[0] % HELD_OUT_CLASSES == 0


@functools.cache
def list_words(kind: str) -> tuple[str, ...]:
    """Return the list words of a kind that training may use."""
    return tuple(word for word in words.split_words(_BLOCKS[kind]) if not is_held_out(word))


@dataclass(frozen=True)
class Language:
    """A few random syllable parts; words of one language are easily mistaken for each other."""

    onsets: tuple[str, ...]
    nuclei: tuple[str, ...]
    codas: tuple[str, ...]

    def draw_word(self, rng: random.Random) -> str:
        """Draw a word of one to three syllables."""
        return "".join(
            rng.choice(self.onsets) + rng.choice(self.nuclei) + rng.choice(self.codas)
            for _ in range(rng.choice((1, 1, 2, 2, 3)))
        )


def draw_language(rng: random.Random) -> Language:
    """Draw the syllable parts of one dialogue's language."""

    def parts(letters: str, lengths: tuple[int, ...]) -> tuple[str, ...]:
        count = rng.randint(2, 12)
        return tuple("".join(rng.choices(letters, k=rng.choice(lengths))) for _ in range(count))

    return Language(
        onsets=parts(_CONSONANTS, (1, 2, 2, 3)),
        nuclei=parts(_VOWELS, (1, 1, 2)),
        codas=parts(_CONSONANTS, (0, 1, 1, 2)),
    )


def draw_value(rng: random.Random, kind: str, language: Language | None = None) -> str:
    """Draw one value of a kind, in the letter case that the kind usually has."""
    while True:
        if kind == "code":
            value = _draw_code(rng)
        elif language is not None and rng.random() < LANGUAGE_SHARE:
            value = _in_case(language.draw_word(rng), kind)
        else:
            value = _draw_word(rng, kind)
        if not is_held_out(value):
            return value


def _draw_code(rng: random.Random) -> str:
    alphabet = "0123456789" if rng.random() < 0.92 else _PASSWORD_CHARACTERS
    return "".join(rng.choices(alphabet, k=rng.choice(CODE_DIGITS)))


def _draw_word(rng: random.Random, kind: str) -> str:
    pick = rng.random()
    if pick < 0.42:
        return rng.choice(list_words(kind))
    make: Callable[[random.Random, str], str] = _letters
    if pick < 0.60:
        make = _syllables
    elif pick < 0.76:
        make = _chimera
    word = make(rng, kind)
    if rng.random() < 0.04:
        word = f"{word} {_syllables(rng, kind)}"
    return _in_case(word, kind)


def _in_case(word: str, kind: str) -> str:
    return word.title() if kind in _CAPITALISED else word


def _syllables(rng: random.Random, kind: str) -> str:
    pairs = [rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(rng.randint(2, 4))]
    return "".join(pairs) + (rng.choice(_CONSONANTS) if rng.random() < 0.4 else "")


def _chimera(rng: random.Random, kind: str) -> str:
    first, second = rng.choice(list_words(kind)), rng.choice(list_words(kind))
    head = first[: rng.randint(2, max(2, len(first) - 1))]
    return (head + second[rng.randint(1, len(second) - 1) :]).lower().strip()


def _letters(rng: random.Random, kind: str) -> str:
    alphabet = _LETTERS + _ACCENTED if rng.random() < 0.06 else _LETTERS
    return "".join(rng.choices(alphabet, k=rng.randint(3, 11)))
