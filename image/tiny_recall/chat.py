"""Renders chats with the model's template, set up as transformers sets it up. Needs only jinja2."""

import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import jinja2
from jinja2 import sandbox

TEMPLATE = pathlib.Path(__file__).with_name("chat_template.jinja")


def render(messages: Sequence[Mapping[str, Any]], add_generation_prompt: bool = True) -> str:
    """Return the text of a chat; raises ValueError if the template refuses it."""
    return _template().render(messages=messages, add_generation_prompt=add_generation_prompt)


@functools.cache
def _template() -> jinja2.Template:
    environment = sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = _refuse
    return environment.from_string(TEMPLATE.read_text())


def _refuse(message: str) -> NoReturn:
    raise ValueError(message)
