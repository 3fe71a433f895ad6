"""Runs in a pod: makes the calls that jobs on its socket name, with the openai SDK.

One process for all of them: importing the SDK takes longer than most of what it is asked.
"""

from __future__ import annotations

import concurrent.futures
import json
import pathlib
import socketserver
import time
from typing import Any

import openai

SOCKET = "/tmp/calls"
# Between an answer and what a person says to it.
READING_S = 1.0


class Job(socketserver.StreamRequestHandler):
    """Reads {base_url, api_key, model, parallel, calls, until}, writes one JSON list.

    A call with `texts` is a chat of several turns, each sent with all that went before.
    """

    def handle(self) -> None:
        """Do it."""
        self.wfile.write(json.dumps(answers_to(json.load(self.rfile))).encode())


def main() -> None:
    """Do jobs until killed."""
    with socketserver.ThreadingUnixStreamServer(SOCKET, Job) as server:
        server.serve_forever()


def answers_to(job: dict[str, Any]) -> list[dict[str, Any]]:
    """Make the calls of a job."""
    with (
        openai.OpenAI(
            base_url=job["base_url"] + "/v1", api_key=job["api_key"], max_retries=0, timeout=120
        ) as client,
        concurrent.futures.ThreadPoolExecutor(job["parallel"]) as pool,
    ):
        answers = pool.map(lambda call: answers_of(client, job, call), job["calls"])
        return [answer for some in answers for answer in some]


def answers_of(
    client: openai.OpenAI, job: dict[str, Any], call: dict[str, Any]
) -> list[dict[str, Any]]:
    """One call's answers: several of a chat, and of one that is made until a file is there."""
    if "texts" in call:
        return hold_chat(client, job["model"], call)
    answers = [perform(client, job["model"], call)]
    while job["until"] and not pathlib.Path(job["until"]).exists():
        answers.append(perform(client, job["model"], call))
    return answers


def hold_chat(client: openai.OpenAI, model: str, call: dict[str, Any]) -> list[dict[str, Any]]:
    """The answers to one text after the other; each has the messages that were sent for it."""
    messages: list[dict[str, str]] = []
    answers: list[dict[str, Any]] = []
    for text in call["texts"]:
        if answers:
            time.sleep(READING_S)
        messages = [*messages, {"role": "user", "content": text}]
        answer = perform(client, model, {**call, "body": {**call["body"], "messages": messages}})
        answers.append({**answer, "messages": messages})
        messages = [*messages, {"role": "assistant", "content": answer.get("text", "")}]
    return answers


def perform(client: openai.OpenAI, model: str, call: dict[str, Any]) -> dict[str, Any]:
    """One call; an API error becomes a value with its status and code."""
    headers = {"x-session-id": call["session"]} if "session" in call else {}
    options = {"model": model, "temperature": 0, "extra_headers": headers, **call["body"]}
    api = client.chat.completions if "messages" in call["body"] else client.completions
    try:
        raw = api.with_raw_response.create(**options)
        answer: dict[str, Any] = {"pod": raw.headers.get("x-rwkv-pod")}
        if options.get("stream"):
            return answer | read_stream(raw.parse())
        parsed = raw.parse()
        choice = parsed.choices[0]
        text = choice.message.content if "messages" in call["body"] else choice.text
        told = {"state": getattr(parsed, "state", None), "finish": choice.finish_reason}
        return answer | read_usage(parsed.usage) | told | {"text": text}
    except openai.APIStatusError as error:
        body = error.body if isinstance(error.body, dict) else {}
        return {"status": error.status_code, "code": body.get("code"), "text": error.message}
    except (openai.APIConnectionError, openai.APIError) as error:
        return {"broken": f"{type(error).__name__}: {error}"}


def read_stream(stream: Any) -> dict[str, Any]:
    """Collect a stream: its text, how many chunks had text, how it finished, its usage."""
    pieces: list[str] = []
    finish, usage = None, {"tokens": None}
    for chunk in stream:
        for choice in chunk.choices:
            delta = choice.delta.content if hasattr(choice, "delta") else choice.text
            pieces += [delta] if delta else []
            finish = choice.finish_reason or finish
        if chunk.usage is not None:
            usage = read_usage(chunk.usage)
    return {"text": "".join(pieces), "chunks": len(pieces), "finish": finish, **usage}


def read_usage(usage: Any) -> dict[str, Any]:
    """Tokens of the answer, of its prompt, and of those the ones that were not read again."""
    details = usage.prompt_tokens_details
    cached = (details and details.cached_tokens) or 0
    return {"tokens": usage.completion_tokens, "prompt": usage.prompt_tokens, "cached": cached}


if __name__ == "__main__":
    main()
