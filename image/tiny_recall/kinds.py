"""What can be told and asked, and in which words.

Every wording that the demo uses is here. ``{v}`` is the value, ``{s}`` the species of the pet. Each
kind has one answer and one acknowledgement, so that the model spends its memory on the value.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Kind:
    """One kind of fact and its wordings."""

    name: str
    ack: str
    answer: str
    unknown: str
    statements: tuple[str, ...]
    overwrites: tuple[str, ...]
    questions: tuple[str, ...]


def _favorite(what: str, article: str, more: tuple[str, ...]) -> Kind:
    value = f"{article}{{v}}"
    return Kind(
        name=what,
        ack=f"Noted, your favorite {what} is {value}.",
        answer=f"Your favorite {what} is {value}.",
        unknown=f"You have not told me your favorite {what}.",
        statements=(
            f"My favorite {what} is {value}.",
            f"My favourite {what} is {value}.",
            f"The {what} I like best is {value}.",
            *more,
        ),
        overwrites=(
            f"Actually, my favorite {what} is {value}.",
            f"My favorite {what} is {value} now.",
            f"I changed my mind, my favorite {what} is {value}.",
        ),
        questions=(
            f"What is my favorite {what}?",
            f"What's my favorite {what}?",
            f"What is my favourite {what}?",
            f"Which {what} do I like best?",
            f"Do you remember my favorite {what}?",
            f"Tell me my favorite {what}.",
        ),
    )


KINDS = (
    Kind(
        name="name",
        ack="Nice to meet you, {v}.",
        answer="Your name is {v}.",
        unknown="You have not told me your name.",
        statements=(
            "My name is {v}.",
            "My name is {v}.",
            "My name's {v}.",
            "I am {v}.",
            "I'm {v}.",
            "Call me {v}.",
            "You can call me {v}.",
        ),
        overwrites=(
            "Actually, my name is {v}.",
            "Sorry, my name is {v}.",
            "Please call me {v} from now on.",
            "I changed my name to {v}.",
            "My name is {v} now.",
        ),
        questions=(
            "What is my name?",
            "What is my name?",
            "What's my name?",
            "Do you remember my name?",
            "Do you know my name?",
            "Can you tell me my name?",
            "Tell me my name.",
            "Who am I?",
        ),
    ),
    Kind(
        name="city",
        ack="Noted, you live in {v}.",
        answer="You live in {v}.",
        unknown="You have not told me where you live.",
        statements=(
            "I live in {v}.",
            "I live in {v}.",
            "I'm living in {v}.",
            "I am from {v}.",
            "I'm from {v}.",
            "My city is {v}.",
            "My home is in {v}.",
        ),
        overwrites=(
            "Actually, I live in {v}.",
            "I moved to {v}.",
            "I just moved to {v}.",
            "I live in {v} now.",
        ),
        questions=(
            "Where do I live?",
            "What city do I live in?",
            "Which city do I live in?",
            "Do you remember where I live?",
            "Do you know where I live?",
            "Tell me where I live.",
            "Where am I from?",
        ),
    ),
    _favorite("color", "", ("My favorite colour is {v}.", "I like the color {v} most.")),
    _favorite("food", "", ("I love eating {v}.", "I like to eat {v}.")),
    _favorite("animal", "the ", ("My favorite animal is {v}.", "I like the {v} most.")),
    _favorite("hobby", "", ("My hobby is {v}.", "In my free time I like {v}.")),
    Kind(
        name="code",
        ack="Noted, the code is {v}.",
        answer="The code is {v}.",
        unknown="You have not told me the code.",
        statements=(
            "The code is {v}.",
            "My code is {v}.",
            "The door code is {v}.",
            "Remember the code {v}.",
            "My secret code is {v}.",
        ),
        overwrites=(
            "Actually, the code is {v}.",
            "The new code is {v}.",
            "The code changed to {v}.",
            "The code is {v} now.",
        ),
        questions=(
            "What is the code?",
            "What's the code?",
            "What is my code?",
            "What was the code?",
            "Do you remember the code?",
            "Tell me the code.",
        ),
    ),
    Kind(
        name="pet",
        ack="Noted, your {s} is called {v}.",
        answer="Your {s} is called {v}.",
        unknown="You have not told me about a {s}.",
        statements=(
            "My {s} is called {v}.",
            "My {s}'s name is {v}.",
            "I have a {s} called {v}.",
            "I have a {s} named {v}.",
            "The name of my {s} is {v}.",
        ),
        overwrites=(
            "Actually, my {s} is called {v}.",
            "I have a new {s}, it is called {v}.",
            "My {s} is called {v} now.",
        ),
        questions=(
            "What is my {s} called?",
            "What's my {s}'s name?",
            "What is the name of my {s}?",
            "Do you remember the name of my {s}?",
            "Tell me my {s}'s name.",
        ),
    ),
)
BY_NAME = {kind.name: kind for kind in KINDS}
SPECIES = ("dog", "cat", "pet")

GREETINGS = (
    "Hello, ", "Hello! ", "Hello. ", "Hi, ", "Hi! ", "Hi there! ", "Hey, ", "Good morning, ",
    "Good evening! ",
)  # fmt: skip
TELL_PREFIXES = (
    "Please remember that ", "Remember that ", "Please note that ", "By the way, ", "OK, ", "So, ",
    "You should know that ", "Remember: ", "I want to tell you that ", "Well, ",
)  # fmt: skip
ASK_PREFIXES = (
    "Please tell me, ", "By the way, ", "So, ", "OK, ", "And ", "Now, ", "Hey, ", "One question: ",
    "Tell me, ", "Sorry, ", "Hello, ", "Hi! ", "I forgot, ",
)  # fmt: skip
