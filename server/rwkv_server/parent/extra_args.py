"""`engine.extraArgs`: the vLLM flags a user may set; nothing else gets through.

The list is that of the CRD, checked again here because an engine.yaml may come from elsewhere.
Flags that load code or files, open ports, weaken the key or move the model are not on it, and a
flag that vLLM adds tomorrow isn't either.
"""

from __future__ import annotations

from collections.abc import Sequence

from rwkv_server.errors import ConfigInvalid

SWITCHES = frozenset({"--async-scheduling", "--enforce-eager", "--no-async-scheduling"})
VALUED = frozenset(
    {
        "--gpu-memory-utilization",
        "--kv-cache-memory-bytes",
        "--long-prefill-token-threshold",
        "--max-cudagraph-capture-size",
        "--max-logprobs",
        "--seed",
        "--uvicorn-log-level",
    }
)


def check_extra_args(args: Sequence[str]) -> list[str]:
    """Return the arguments, each one `--flag` or `--flag=value`.

    Raises:
        ConfigInvalid: naming the first that isn't on the list, lacks its value or has one too many.
    """
    for argument in args:
        flag, _, value = argument.partition("=")
        if argument not in SWITCHES and (flag not in VALUED or not value):
            found = argument[:100]
            allowed = sorted(SWITCHES) + [f"{name}=VALUE" for name in sorted(VALUED)]
            raise ConfigInvalid(
                f"engine.extraArgs: {found!r} can't be used, wanted one of {', '.join(allowed)}",
                found=found,
                wanted=", ".join(allowed),
            )
    return list(args)
