"""A conversation as an application would hold it; runs in a pod, talks to the Service.

Reads URL, API_KEY, MODEL and TURNS (a JSON list of user texts) from the environment and prints one
JSON line for each turn. Like any OpenAI client it sends the whole chat each time; the header
`x-session-id` keeps it on one engine.
"""

from __future__ import annotations

import json
import os

import httpx


def main() -> None:
    """Hold the conversation."""
    headers = {"authorization": f"Bearer {os.environ['API_KEY']}", "x-session-id": "demo"}
    messages: list[dict[str, str]] = []
    with httpx.Client(base_url=os.environ["URL"], headers=headers, timeout=120) as client:
        for text in json.loads(os.environ["TURNS"]):
            messages.append({"role": "user", "content": text})
            body = {"model": os.environ["MODEL"], "messages": messages, "temperature": 0}
            answer = client.post("/v1/chat/completions", json=body)
            if answer.status_code != 200:
                raise SystemExit(f"{answer.status_code}: {answer.text}")
            reply = answer.json()["choices"][0]["message"]["content"].strip()
            messages.append({"role": "assistant", "content": reply})
            turn = {"user": text, "assistant": reply, "pod": answer.headers.get("x-rwkv-pod")}
            print(json.dumps(turn), flush=True)


if __name__ == "__main__":
    main()
