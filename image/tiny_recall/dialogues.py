"""Generates training dialogues as turns: facts told, changed and asked for between small talk.

The turns are plain text; ``rows.py`` turns them into ids. Nothing of the evaluation is used here.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from tiny_recall import chitchat, kinds, values, words

TEXT, UNKNOWN, ACK_VALUE, ANSWER_VALUE = 1.0, 1.5, 4.0, 5.0

Piece = tuple[str, float]

_SMALL_TALK = words.split_words(words.SMALL_TALK)


@dataclass(frozen=True)
class Turn:
    """What the user says, and the reply in pieces with their loss weights."""

    user: str
    reply: tuple[Piece, ...]
    ends: bool = False

    @property
    def reply_text(self) -> str:
        """The whole reply."""
        return "".join(text for text, _ in self.reply)


@dataclass
class Memory:
    """What the user has told so far in one dialogue."""

    species: str
    told: dict[str, str] = field(default_factory=dict)
    last_asked: str = ""
    language: values.Language | None = None
    oldest_first: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Mix:
    """How often a turn says what; ``ask`` is the share of questions among asking and telling."""

    goodbye: float = 0.008
    ask_any: float = 0.06
    small_talk: float = 0.2
    ask: float = 0.6
    hard: bool = False  # values that resemble each other, older facts asked for more often


def generate_system_prompt(rng: random.Random) -> str | None:
    """Draw a system prompt; two dialogues of three have none."""
    pick = rng.random()
    if pick < 0.66:
        return None
    if pick < 0.86:
        return rng.choice(chitchat.SYSTEM_PROMPTS)
    return _sentence(rng, rng.randint(3, 12))


def generate_turns(rng: random.Random, mix: Mix | None = None) -> Iterator[Turn]:
    """Yield the turns of one dialogue, without an end unless the user says goodbye."""
    mix = mix or Mix()
    memory = Memory(species=rng.choice(kinds.SPECIES))
    if mix.hard:
        memory.language = values.draw_language(rng)
    while True:
        pick = rng.random()
        if pick < mix.goodbye:
            ends = rng.random() < 0.8
            yield Turn(
                _vary(rng, rng.choice(chitchat.GOODBYES)), ((chitchat.GOODBYE_REPLY, TEXT),), ends
            )
            if ends:
                return
        elif pick < mix.goodbye + mix.ask_any:
            yield build_question(rng, memory, rng.choice(kinds.KINDS).name)
        elif pick < mix.goodbye + mix.ask_any + mix.small_talk:
            yield build_small_talk(rng)
        elif memory.told and rng.random() < mix.ask:
            yield _ask_told(rng, memory)
        else:
            yield _tell(rng, memory)


def build_question(rng: random.Random, memory: Memory, name: str, varied: bool = True) -> Turn:
    """Ask for one kind of fact; the reply depends on whether the memory has it."""
    kind = kinds.BY_NAME[name]
    user = rng.choice(kind.questions).replace("{s}", memory.species)
    if varied:
        if rng.random() < 0.15:
            user = rng.choice(kinds.ASK_PREFIXES) + lower_first(user)
        user = _vary(rng, user)
    memory.last_asked = name
    if name in memory.told:
        return Turn(user, _pieces(kind.answer, memory, name, ANSWER_VALUE))
    return Turn(user, ((kind.unknown.replace("{s}", memory.species), UNKNOWN),))


def build_statement(
    rng: random.Random, memory: Memory, facts: dict[str, str], varied: bool = True
) -> Turn:
    """Tell one or two facts in one message and remember them."""
    texts = [_statement_text(rng, memory, name, value) for name, value in facts.items()]
    user = texts[0]
    for text in texts[1:]:
        link = rng.choice((" and ", " and ", ", and ", ". "))
        user = user.rstrip(".") + link + (text if link == ". " else lower_first(text))
    if varied:
        user = _vary(rng, _dress_statement(rng, user, "name" in facts))
    told = {name: _as_written(user, value) for name, value in facts.items()}
    memory.told.update(told)
    memory.oldest_first = [name for name in memory.oldest_first if name not in told] + list(told)
    reply: list[Piece] = []
    for name in facts:
        if reply:
            reply.append((" ", TEXT))
        reply.extend(_pieces(kinds.BY_NAME[name].ack, memory, name, ACK_VALUE))
    return Turn(user, tuple(reply))


def build_small_talk(rng: random.Random, varied: bool = True) -> Turn:
    """Say something that is no fact: a known phrase, or a sentence without meaning."""
    if varied and rng.random() < 0.2:
        sentence = _sentence(rng, rng.randint(1, 10))
        return Turn(_vary(rng, sentence), ((chitchat.NO_ANSWER, TEXT),))
    phrases, reply = rng.choice(chitchat.CHITCHAT)
    phrase = rng.choice(phrases)
    return Turn(_vary(rng, phrase) if varied else phrase, ((reply, TEXT),))


def lower_first(text: str) -> str:
    """Lower the first letter, but not of the word I."""
    return text if text.startswith(("I ", "I'")) else text[:1].lower() + text[1:]


def _ask_told(rng: random.Random, memory: Memory) -> Turn:
    others = [name for name in memory.told if name != memory.last_asked]
    if not others or rng.random() < 0.1:
        others = list(memory.told)
    if rng.random() < 0.12:
        others = list(kinds.BY_NAME)
    elif memory.language is not None:
        others = [name for name in memory.oldest_first if name in others]
        return build_question(rng, memory, others[int(len(others) * rng.random() ** 1.6)])
    return build_question(rng, memory, rng.choice(others))


def _tell(rng: random.Random, memory: Memory) -> Turn:
    if memory.told and rng.random() < 0.25:
        names = [rng.choice(list(memory.told))]
    else:
        names = rng.sample(list(kinds.BY_NAME), 2 if rng.random() < 0.25 else 1)
    return build_statement(rng, memory, {name: _draw_cased(rng, memory, name) for name in names})


def _draw_cased(rng: random.Random, memory: Memory, name: str) -> str:
    value = values.draw_value(rng, name, memory.language)
    return value.capitalize() if rng.random() < 0.04 else value


def _statement_text(rng: random.Random, memory: Memory, name: str, value: str) -> str:
    kind = kinds.BY_NAME[name]
    known = name in memory.told
    wordings = kind.overwrites if known and rng.random() < 0.6 else kind.statements
    return rng.choice(wordings).replace("{v}", value).replace("{s}", memory.species)


def _dress_statement(rng: random.Random, user: str, introduces: bool) -> str:
    pick = rng.random()
    if pick < (0.5 if introduces else 0.1):
        prefix = rng.choice(kinds.GREETINGS)
        user = prefix + (lower_first(user) if prefix.endswith(", ") else user)
    elif pick < (0.6 if introduces else 0.25):
        user = rng.choice(kinds.TELL_PREFIXES) + lower_first(user)
    if rng.random() < 0.04:
        user = f"{user} {rng.choice(('How are you?', 'Nice to meet you.', 'What can you do?'))}"
    return user


def _vary(rng: random.Random, text: str) -> str:
    pick = rng.random()
    if pick < 0.12:
        text = text.rstrip(".?!") or text
    elif pick < 0.16:
        text = text.rstrip(".") + "!" if text.endswith(".") else text + text[-1]
    elif pick < 0.18:
        text = text + " " + rng.choice((":)", "Thanks.", "Please."))
    case = rng.random()
    if case < 0.09:
        return text.lower()
    return text.upper() if case < 0.1 else text


def _as_written(user: str, value: str) -> str:
    return next(form for form in (value, value.lower(), value.upper()) if form in user)


def _pieces(template: str, memory: Memory, name: str, weight: float) -> tuple[Piece, ...]:
    before, after = template.replace("{s}", memory.species).split("{v}")
    end = TEXT if memory.language is None else weight  # to stop in time counts as much
    return ((before, TEXT), (memory.told[name], weight), (after, end))


def _sentence(rng: random.Random, length: int) -> str:
    chosen = rng.choices(_SMALL_TALK, k=length)
    text = " ".join(chosen)
    return text[:1].upper() + text[1:] + rng.choice((".", ".", "?", "!", ""))
