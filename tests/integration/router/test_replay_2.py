"""A public incident replayed: sessions named in the body only, and requests without any key.

Seen as production-stack-like routers that looked at headers only, so that clients which can only
set body fields lost their session's engine on every turn, and long prompts hid the field.
"""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from router_rig import Rig

pytestmark = pytest.mark.haproxy


def completion(prompt: str, **fields: str) -> bytes:
    """A completion with extra fields at the end, as OpenAI's SDK sends them."""
    return json.dumps({"model": "chat", "prompt": prompt, **fields}).encode()


def test_ids_in_the_body_spread_and_stick(own_rig: Rig) -> None:
    path = "/v1/completions"
    bodies = [completion("hi", session_id=f"user-{index}") for index in range(40)]
    first = [own_rig.home(0, path=path, content=body) for body in bodies]
    for router in (1, 0, 1):
        assert [own_rig.home(router, path=path, content=body) for body in bodies] == first
    counts = Counter(first)
    # 40 balls into 3 bins: fewer than 5 in one has a chance of 1 in 1,000, and it is fixed by ids.
    assert len(counts) == 3 and min(counts.values()) >= 5, counts
    answer = own_rig.ask(path=path, content=bodies[0])
    assert own_rig.routers[0].log_line(answer)["by"] == "body"


def test_completions_without_a_key_are_balanced(own_rig: Rig) -> None:
    body = completion("hi")
    for engine in own_rig.engines:
        # All are under way at the same time, as far as the machine can start 40 in a second.
        engine.delay = 1.0

    def home(index: int) -> str:
        return own_rig.home(index % 2, path="/v1/completions", content=body)

    with ThreadPoolExecutor(40) as pool:
        counts = Counter(pool.map(home, range(40)))
    assert len(counts) == 3 and min(counts.values()) >= 10, counts


@pytest.mark.parametrize("size", [20_000, 300_000])
def test_an_id_behind_a_long_prompt_is_found(own_rig: Rig, size: int) -> None:
    path = "/v1/completions"
    for index in range(8):
        short = completion("hi", session_id=f"user-{index}")
        long = completion("x" * size, session_id=f"user-{index}")
        homes = {
            own_rig.home(router, path=path, content=body)
            for router in (0, 1)
            for body in (short, long)
        }
        assert len(homes) == 1


def test_an_id_behind_a_prompt_that_is_too_long_is_asked_for_in_the_header(own_rig: Rig) -> None:
    body = completion("x" * 1_100_000, session_id="user")
    answer = own_rig.ask(path="/v1/completions", content=body)
    assert answer.status_code == 413
    assert "x-session-id" in answer.json()["error"]["message"]
    # The connection is still good for the same request with the header.
    header = {"x-session-id": "user"}
    assert own_rig.ask(path="/v1/completions", content=body, headers=header).status_code == 200
