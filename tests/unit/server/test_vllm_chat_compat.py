"""The way of a framed chat with either kind of vLLM, and tokens that are carried beside one."""

from __future__ import annotations

import asyncio

import pytest

from rwkv_server import vllm_chat_compat
from rwkv_server.vllm_chat_compat import ChatRoutes

NEW, OLD = ChatRoutes(take_tokens=True), ChatRoutes(take_tokens=False)
PARAMS = {"rwkv_transfer": "{}", "rwkv_signature": "f"}
CHAT = {"model": "m", "messages": []}
RESPONSE = {"input": "-", "messages": "of a chat, which it isn't"}


@pytest.mark.parametrize(
    ("routes", "body", "wanted", "carried"),
    [
        (NEW, CHAT, {"kv_transfer_params": {**PARAMS, "prompt_token_ids": [7]}}, None),
        (NEW, RESPONSE, {"kv_transfer_params": {**PARAMS, "prompt_token_ids": [7]}}, None),
        (OLD, CHAT, {"kv_transfer_params": PARAMS}, [7]),
        (OLD, RESPONSE, {"vllm_xargs": PARAMS}, [7]),
        (OLD, {"input": "", "vllm_xargs": {"a": 1}}, {"vllm_xargs": {"a": 1, **PARAMS}}, [7]),
        (OLD, {"input": "", "vllm_xargs": "for vLLM to refuse"}, {}, [7]),
    ],
    ids=["chat", "response", "0.18 chat", "0.18 response", "with arguments", "with nonsense"],
)
def test_tokens_go_where_the_route_takes_them(routes, body, wanted, carried):
    told = routes.hand_over(body, PARAMS, [7], response="input" in body)
    assert told == ({**body, **wanted}, carried)


def test_an_effort_tells_the_template_what_the_route_would():
    chat = {**CHAT, "reasoning_effort": "high", "chat_template_kwargs": {"a": 1}}
    assert NEW.template_request(chat) is chat
    told = OLD.template_request(chat)
    assert told["chat_template_kwargs"] == {"a": 1, "reasoning_effort": "high"}
    assert told["reasoning_effort"] is None
    assert OLD.template_request(CHAT) is CHAT


async def test_each_request_has_its_own_tokens():
    async def ask(number):
        with vllm_chat_compat.carry([number]) as carried:
            await asyncio.sleep(0)
            (taken,) = await asyncio.gather(render())
        assert carried.taken
        return taken

    async def render():
        return vllm_chat_compat.take_carried()

    assert await asyncio.gather(*map(ask, range(3))) == [[0], [1], [2]]
    assert vllm_chat_compat.take_carried() is None


async def test_who_comes_after_a_request_has_none_of_its_tokens():
    """A server may begin the next request of a connection in a copy of this one's context."""

    answered = asyncio.Event()

    async def later():
        await answered.wait()
        return vllm_chat_compat.take_carried()

    async def next_request():
        vllm_chat_compat.carry_nothing()
        return vllm_chat_compat.take_carried()

    with vllm_chat_compat.carry([1]) as carried:
        after, meanwhile = asyncio.create_task(later()), asyncio.create_task(next_request())
        assert await meanwhile is None and not carried.taken
    answered.set()
    assert await after is None


def test_tokens_that_nobody_took():
    with vllm_chat_compat.carry([1]) as carried:
        pass
    assert not carried.taken
