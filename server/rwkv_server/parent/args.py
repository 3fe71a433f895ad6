"""The child's command line and environment: engine.yaml and the model's facts in, lists out.

Pure, so that a table can test it. The key never appears in the command line, which any process may
read; it travels in the environment.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from rwkv_server.errors import ConfigInvalid
from rwkv_server.model import packed_manifest
from rwkv_server.model.config import RWKV7Config
from rwkv_server.parent import states
from rwkv_server.parent.extra_args import check_extra_args
from rwkv_server.preflight.model import ModelInfo
from rwkv_server.settings import Settings
from rwkv_server.states import environment
from rwkv_server.tokenizer import vocabulary as world
from rwkv_server.web import body

MODULE = "vllm.entrypoints.openai.api_server"
# vLLM puts each in front of the one before, so the gate comes last to see requests first.
MIDDLEWARE = ("rwkv_server.states.web.layer.StateLayer", "rwkv_server.web.gate.Gate")
QUIET_PATHS = "/health,/metrics"

# One thread beats two for models whose step is shorter than OpenMP's own barrier.
TINY_PARAMETERS = 50_000_000
# Slots beyond maxNumSeqs: vLLM keeps one block as the null block, and rounds down.
SPARE_SLOTS = 2
MEBIBYTE = 1 << 20
CACHE_FLAG = "--kv-cache-memory-bytes"
# On CPUs vLLM turns the name `uni` into a worker process of its own, to give it threads. It has its
# threads from the environment here, so the import path keeps one process and one start less.
ONE_PROCESS_EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
# Compiled grammars that are kept; vLLM's own bound of 512 is half of a small pod.
GRAMMAR_CACHE_MIB = 64
# Longer than the router keeps an idle connection, so that we never close one under a request.
KEEP_ALIVE_S = 75

# Who chooses tokens, or a part of it. Each fits one of vLLM's two model runners; V2 is the one for
# NVIDIA devices, and the environment says so, should vLLM's default change.
LOGITS_PROCESSORS = {
    "cpu": "rwkv_server.sampling.whole:WholeSampler",
    "ascend": "rwkv_server.sampling.decay_v1:DecayV1",
    "nvidia": "rwkv_server.sampling.decay_v2:DecayV2",
}

# World models that bring no tokenizer get theirs, with its chat format, from us.
WORLD_FLAGS: dict[str, object] = {
    "tokenizer-mode": world.MODE,
    "tool-call-parser": world.MODE,
    "reasoning-parser": world.MODE,
}
END_FLAGS: dict[str, object] = {
    "override-generation-config": json.dumps({"eos_token_id": world.END})
}

# Who reads grammars. Left to itself vLLM checks each request with the one that suits it, but has
# only what suited the first: other requests fail inside, and 0.18 loses its engine.
GRAMMARS = "xgrammar"

# Variables that would open vLLM up or lead states astray, should an image or a pod template carry
# them.
NEVER_INHERITED = frozenset(
    {
        environment.KEY_VARIABLE,
        environment.VARIABLE,
        "VLLM_ALLOW_INSECURE_SERIALIZATION",
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING",
        "VLLM_DEBUG_LOG_API_SERVER_RESPONSE",
        "VLLM_KEEP_ALIVE_ON_ENGINE_DEATH",
        "VLLM_SERVER_DEV_MODE",
    }
)


def child_args(settings: Settings, model: ModelInfo) -> list[str]:
    """The whole command line of the vLLM child.

    Raises:
        ConfigInvalid: `engine.extraArgs` holds a flag that may not be set, or two sizes disagree.
    """
    engine = settings.engine
    if engine.max_num_batched_tokens < engine.max_num_seqs:
        raise ConfigInvalid(
            "engine.maxNumBatchedTokens is smaller than engine.maxNumSeqs: "
            "a step has at least one token for each sequence",
            found=engine.max_num_batched_tokens,
            wanted=f"at least {engine.max_num_seqs}",
        )
    flags = _flags(settings, model) | _quantization_flags(settings, model)
    flags |= WORLD_FLAGS if model.world else {}
    flags |= END_FLAGS if model.wrong_end else {}
    if states.are_offered(settings.stack):
        port = settings.http.port
        told = transfer_config(states.slots_file(port), states.socket_file(port))
        flags["kv-transfer-config"] = json.dumps(told)
    switches = [
        "--no-enable-prefix-caching",
        "--enable-chunked-prefill",
        "--disable-fastapi-docs",
    ]
    if not any(argument.startswith(CACHE_FLAG) for argument in engine.extra_args):
        # The same in slots, for vLLM 0.18 and Ascend's plugin, which don't read the bytes.
        flags["num-gpu-blocks-override"] = engine.max_num_seqs + SPARE_SLOTS
    if model.world:
        switches.append("--enable-auto-tool-choice")
    if settings.stack.vendor == "cpu":
        # The image has no compiler for torch.compile, and eager is as fast at these sizes.
        switches.append("--enforce-eager")
        if engine.tensor_parallel_size == 1:
            flags["distributed-executor-backend"] = ONE_PROCESS_EXECUTOR
    if settings.stack.vendor == "ascend":
        _check_ascend(settings)
        switches.append("--enforce-eager")
    return [
        sys.executable,
        "-m",
        MODULE,
        *(f"--{name}={value}" for name, value in flags.items()),
        *(f"--middleware={name}" for name in MIDDLEWARE),
        *switches,
        *check_extra_args(engine.extra_args),
    ]


def child_env(
    inherited: Mapping[str, str], key: str, threads: int, vendor: str, vocabulary: int
) -> dict[str, str]:
    """The child's environment: the parent's, then what must hold whatever a pod brings."""
    kept = {name: value for name, value in inherited.items() if name not in NEVER_INHERITED}
    fixed = {
        "VLLM_API_KEY": key,
        body.VOCABULARY: str(vocabulary),
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_HTTP_TIMEOUT_KEEP_ALIVE": str(KEEP_ALIVE_S),
        "VLLM_XGRAMMAR_CACHE_MB": str(GRAMMAR_CACHE_MIB),
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if vendor == "cpu":
        fixed |= {
            "OMP_NUM_THREADS": str(threads),
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            # vLLM compiles some functions even when eager is asked for, logprobs among them; a
            # machine without a compiler would lose its engine to the first such request.
            "TORCH_COMPILE_DISABLE": "1",
        }
    if vendor == "nvidia":
        fixed["VLLM_USE_V2_MODEL_RUNNER"] = "1"
    return kept | fixed


def transfer_config(slots: Path, socket: Path) -> dict[str, object]:
    """What vLLM is told of our connector.

    Args:
        slots: the shared-memory file of snapshots.
        socket: where workers tell of requests that ended.
    """
    return {
        "kv_connector": "StateConnector",
        "kv_connector_module_path": "rwkv_server.states.connector.connector",
        "kv_role": "kv_both",
        # A state that can't be loaded fails its request; the other policy would start from nothing.
        "kv_load_failure_policy": "fail",
        "kv_connector_extra_config": {"slots": str(slots), "socket": str(socket)},
    }


def cache_bytes(state_bytes: int, max_num_seqs: int) -> int:
    """Bytes of the state cache, in whole mebibytes."""
    wanted = state_bytes * (max_num_seqs + SPARE_SLOTS)
    return -(-wanted // MEBIBYTE) * MEBIBYTE


def compute_threads(cores: int, parameters: int, ranks: int) -> int:
    """OpenMP threads of each of the engine's workers: together no more than the quota's cores."""
    return 1 if parameters < TINY_PARAMETERS else max(1, cores // ranks)


def check_ranks(ranks: int, config: RWKV7Config) -> None:
    """Each device has whole heads and feed-forward channels, as many as any other.

    Raises:
        ConfigInvalid: the model can't be split so.
    """
    counts = {"heads": config.num_heads, "feed-forward channels": config.intermediate_size}
    for what, count in counts.items():
        if count % ranks:
            raise ConfigInvalid(
                f"engine.tensorParallelSize: {ranks} devices can't share the model's {count} "
                f"{what} evenly; set spec.hardware.devicesPerReplica to a number that divides them",
                found=ranks,
                wanted=f"a divisor of {count}",
            )


def _check_ascend(settings: Settings) -> None:
    """Refuse what the plugin would refuse on Ascend once vLLM has started."""
    devices = settings.engine.tensor_parallel_size
    if devices > 1:
        raise ConfigInvalid(
            f"engine.tensorParallelSize: a replica on the hardware stack {settings.stack.name} "
            "has one device; set spec.hardware.devicesPerReplica to 1 and raise spec.replicas",
            found=devices,
            wanted=1,
        )


def _quantization_flags(settings: Settings, model: ModelInfo) -> dict[str, object]:
    """Weights in fewer bits, where they are asked for and the stack allows them."""
    scheme, allowed = settings.engine.quantization, settings.stack.supports.quantization
    if scheme == "None":
        return {}
    if scheme not in allowed:
        told = " or ".join(allowed) or "None"
        raise ConfigInvalid(
            f"engine.quantization: the hardware stack {settings.stack.name} doesn't support it",
            found=scheme,
            wanted=told,
        )
    wish: dict[str, object] = {packed_manifest.KEY: {"scheme": scheme, "model": model.digest}}
    if scheme in packed_manifest.ON_LOAD:
        wish = {packed_manifest.ON_LOAD_KEY: scheme}
    return {"additional-config": json.dumps(wish)}


def _flags(settings: Settings, model: ModelInfo) -> dict[str, object]:
    engine = settings.engine
    return {
        "model": str(model.path),
        "served-model-name": settings.model.served_name,
        "host": "0.0.0.0",
        "port": settings.http.port,
        "dtype": model.dtype,
        "load-format": "safetensors",
        "max-model-len": settings.model.max_model_len,
        "max-num-seqs": engine.max_num_seqs,
        "max-num-batched-tokens": engine.max_num_batched_tokens,
        "tensor-parallel-size": engine.tensor_parallel_size,
        "kv-cache-memory-bytes": cache_bytes(model.state_bytes, engine.max_num_seqs),
        "logits-processors": LOGITS_PROCESSORS[settings.stack.vendor],
        "disable-access-log-for-endpoints": QUIET_PATHS,
        "structured-outputs-config": json.dumps({"backend": GRAMMARS}),
    }
