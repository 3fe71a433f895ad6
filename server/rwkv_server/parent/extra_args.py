"""`engine.extraArgs`: the vLLM flags a user may set, and the parser that lets nothing else through.

The list holds flags that change how requests are answered. Flags that load code or files, open
ports, weaken the key or move the model are not on it, and a flag that vLLM adds tomorrow isn't
either.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from rwkv_server.errors import ConfigInvalid

SWITCHES = frozenset(
    {
        "--async-scheduling",
        "--disable-log-stats",
        "--enable-auto-tool-choice",
        "--enable-force-include-usage",
        "--enable-per-request-metrics",
        "--enable-prompt-tokens-details",
        "--enforce-eager",
        "--exclude-tools-when-tool-choice-none",
        "--no-async-scheduling",
        "--no-enforce-eager",
        "--return-tokens-as-token-ids",
    }
)
VALUED = frozenset(
    {
        "--chat-template-content-format",
        "--default-chat-template-kwargs",
        "--fingerprint-mode",
        "--fingerprint-value",
        "--kv-cache-memory-bytes",
        "--logprobs-mode",
        "--max-logprobs",
        "--override-generation-config",
        "--reasoning-parser",
        "--response-role",
        "--seed",
        "--sse-keep-alive-interval",
        "--tool-call-parser",
        "--uvicorn-log-level",
    }
)


def parse_extra_args(args: Sequence[str]) -> list[str]:
    """Return the arguments as `--flag` or `--flag=value`.

    Raises:
        ConfigInvalid: a flag isn't on the list, lacks its value or has one too many.
    """
    parsed: list[str] = []
    rest = list(args)
    while rest:
        flag, has_value, value = rest.pop(0).partition("=")
        flag = flag.replace("_", "-")
        if flag in SWITCHES and not has_value:
            parsed.append(flag)
        elif flag in VALUED:
            if not has_value:
                if not rest or not _is_value(rest[0]):
                    raise _refused(flag, f"a value after {flag}")
                value = rest.pop(0)
            parsed.append(f"{flag}={value}")
        elif flag in SWITCHES:
            raise _refused(f"{flag}={value}", f"{flag} without a value")
        else:
            raise _refused(flag, "one of " + ", ".join(sorted(SWITCHES | VALUED)))
    return parsed


def _is_value(text: str) -> bool:
    return not text.startswith("-") or re.fullmatch(r"-\d+(\.\d+)?", text) is not None


def _refused(found: str, wanted: str) -> ConfigInvalid:
    found = found[:100]
    return ConfigInvalid(
        f"engine.extraArgs: {found} can't be used, wanted {wanted}", found=found, wanted=wanted
    )
