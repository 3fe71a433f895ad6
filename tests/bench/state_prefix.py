"""One chat on our automatic reuse, on vLLM's own prefix cache, and read whole; turn by turn.

Part of `state_bench`. The engines run side by side and answer in turns, so that what disturbs the
machine disturbs all of them. vLLM's cache ("align") is that of its own server, with our model and
flags but without our connector and middleware, which it excludes.
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import random_checkpoint
from results import Row
from server_process import KEY, ServerProcess
from state_load import WORDS, Client, spread, tokens

from rwkv_server import settings
from rwkv_server.model import state_layout
from rwkv_server.parent import args
from rwkv_server.preflight.model import ModelInfo

TURNS = 100
# First times are medians of these turns; the prompts of the last are also read whole.
EARLY, LATE, WHOLE = range(1, 11), range(90, 100), range(97, 100)
# vLLM's default where attention has no wish of its own; its cache finds whole blocks only.
BLOCK = 16
DTYPE = "bfloat16"
STATE = state_layout.session_bytes(random_checkpoint.SMALL, DTYPE)
# Room for every state that a chat leaves, and more; neither side has to forget one.
ROOM = TURNS + 60
LONG = 16384  # our reuse needs no more than 4096: what isn't read doesn't count
START_TIMEOUT_S = 300
PEER = f"vLLM align, blocks of {BLOCK}"
# What vLLM's server gets otherwise than our child, by the beginnings of arguments.
LEFT_OUT = (
    "--kv-transfer-config",
    "--middleware",
    "--no-enable-prefix-caching",
    "--num-gpu-blocks-override",
    "--kv-cache-memory-bytes",
)


@dataclass(frozen=True)
class Seen:
    """What one engine answered: ms to the first words, tokens of the prompt, and those not read."""

    first_ms: float
    prompt: int
    not_read: int


class PrefixCacheServer(ServerProcess):
    """vLLM's own server with its prefix cache."""

    def _command(self, *_words: str) -> list[str]:
        parsed = settings.parse_settings(self.config.read_text())
        model = ModelInfo(
            path=parsed.model.path,
            digest="",
            format="SafeTensors",
            dtype=DTYPE,
            vocab_size=random_checkpoint.SMALL.vocab_size,
            state_bytes=STATE,
            parameters=args.TINY_PARAMETERS,
            world=True,
        )
        ours = args.child_args(parsed, model)
        kept = [one for one in ours if not one.startswith(LEFT_OUT)]
        variables = args.child_env({}, KEY, 2, "cpu", model.vocab_size)
        return [
            "env",
            *(f"{name}={value}" for name, value in variables.items()),
            *kept,
            "--enable-prefix-caching",
            f"--block-size={BLOCK}",
            f"--num-gpu-blocks-override={ROOM}",
            f"--kv-cache-memory-bytes={ROOM * STATE}",
            "--enable-prompt-tokens-details",
        ]

    def wait_until_ready(self, timeout_s: float) -> None:
        """As a server of ours, which has a port for this."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/health", trust_env=False).status_code == 200:
                    return
            time.sleep(0.1)
        raise AssertionError(f"not ready: exit code {self.process.poll()}\n{self.tail()}")


@contextlib.contextmanager
def three_engines(folder: Path, model: Path) -> Iterator[dict[str, Client]]:
    """Clients of ready servers: ours with reuse, vLLM's with its cache, ours without either."""
    ours = {"model__dtype": "BFloat16"}
    reuse = {"state__automaticReuse": "Memory", "state__hotBytes": ROOM * STATE}
    off = {"state__automaticReuse": "Off", "model__maxModelLen": LONG}
    with contextlib.ExitStack() as stack:
        servers: dict[str, ServerProcess] = {}
        for name, kind, fields in (
            ("reuse", ServerProcess, ours | reuse),
            ("align", PrefixCacheServer, ours | off),
            ("whole", ServerProcess, ours | off),
        ):
            servers[name] = kind(folder / name, model, **fields)
            stack.callback(servers[name].stop)
        for server in servers.values():
            server.wait_until_ready(START_TIMEOUT_S)
        clients = {name: Client(server) for name, server in servers.items()}
        for client in clients.values():
            for seed in range(3):
                client.complete(tokens(64, seed))
        yield clients


def talk(clients: dict[str, Client], turns: int) -> dict[str, dict[int, Seen]]:
    """A stock client's chat, each turn sent to all engines; the first one's answers go on.

    Raises:
        RuntimeError: the engines didn't get the same prompts.
    """
    chance, messages = random.Random(1), []
    seen: dict[str, dict[int, Seen]] = {name: {} for name in clients}
    for turn in range(turns):
        said = " ".join(chance.choices(WORDS, k=34))
        messages.append({"role": "user", "content": said})
        answer = ""
        for name, client in clients.items():
            if name == "whole" and turn not in (1, *WHOLE):
                continue
            first, text, usage = client.chat(list(messages))
            details: dict[str, Any] = usage.get("prompt_tokens_details") or {}
            seen[name][turn] = Seen(
                first, usage["prompt_tokens"], details.get("cached_tokens") or 0
            )
            answer = text if name == "reuse" else answer
        if len({told[turn].prompt for told in seen.values() if turn in told}) != 1:
            raise RuntimeError(f"turn {turn + 1}: the engines got different prompts")
        messages.append({"role": "assistant", "content": answer})
    return seen


def firsts(told: dict[int, Seen], turns: Sequence[int]) -> list[float]:
    """ms to the first words of those of `turns` that were asked."""
    return [told[turn].first_ms for turn in turns if turn in told]


def measure(folder: Path, model: Path) -> list[Row]:
    """The rows, each ours against vLLM's cache or against reading the whole prompt."""
    with three_engines(folder, model) as clients:
        seen = talk(clients, TURNS)
    reuse, align, whole = (seen[name] for name in ("reuse", "align", "whole"))
    late = firsts(reuse, LATE)
    rows = [
        Row(
            f"same_chat/ttft_turn100/{short}",
            statistics.median(late),
            "ms",
            "lower",
            len(late),
            spread(late),
            peer,
            statistics.median(firsts(told, LATE)),
        )
        for short, peer, told in (("align", PEER, align), ("replay", "full replay", whole))
    ]
    for name, count, better in (
        ("ttft_turn100_over_turn2", growth, "lower"),
        ("hits_after_first_turn", hits, "higher"),
        ("tokens_not_read", share_not_read, "higher"),
    ):
        against = (PEER, count(align))
        rows.append(Row(f"same_chat/{name}/align", count(reuse), "", better, 1, 0.0, *against))
    # Counted and not measured; `test_prefix_cache` and `test_states_reuse` see the states.
    rows.append(
        Row("same_chat/bytes_left_by_a_turn/align", STATE, "bytes", "lower", 1, 0.0, PEER, STATE)
    )
    return rows


def growth(told: dict[int, Seen]) -> float:
    """The first words of late turns against those of early ones."""
    return statistics.median(firsts(told, LATE)) / statistics.median(firsts(told, EARLY))


def hits(told: dict[int, Seen]) -> float:
    """The share of turns after the first that found anything."""
    later = [one.not_read > 0 for turn, one in told.items() if turn > 0]
    return sum(later) / len(later)


def share_not_read(told: dict[int, Seen]) -> float:
    """Tokens of prompts that weren't read."""
    return sum(one.not_read for one in told.values()) / sum(one.prompt for one in told.values())
