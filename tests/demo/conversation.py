"""Some turns of a conversation as an application would hold it; runs in a pod, asks the Service.

Reads {url, key, model, session, opens, turns} from standard input and prints one JSON line for
each turn. Only the new text is sent: the session's state, which the engines keep, has the rest.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import httpx


def main() -> None:
    """Hold the turns."""
    job = json.load(sys.stdin)
    headers = {"authorization": f"Bearer {job['key']}", "x-session-id": job["session"]}
    opens = job["opens"]
    with httpx.Client(base_url=job["url"], headers=headers, timeout=120) as client:
        for text in job["turns"]:
            state = {"session": "new" if opens else True}
            print(json.dumps(say(client, job["model"], text, state)), flush=True)
            opens = False


def say(client: httpx.Client, model: str, text: str, state: dict[str, Any]) -> dict[str, Any]:
    """One turn: what was said, who answered, and from where the state came."""
    messages = [{"role": "user", "content": text}]
    body = {"model": model, "messages": messages, "temperature": 0, "state": state}
    answer = client.post("/v1/chat/completions", json=body)
    if answer.status_code != 200:
        raise SystemExit(f"{answer.status_code}: {answer.text}")
    content = answer.json()
    return {
        "user": text,
        "assistant": content["choices"][0]["message"]["content"].strip(),
        "pod": answer.headers.get("x-rwkv-pod"),
        "source": content["state"]["source"],
    }


if __name__ == "__main__":
    main()
