"""A whole RWKV-7 of our kernels and torch's products, without vLLM: parity and what it could give.

Its tokens a second are what the kernels allow; vLLM's own work per step comes on top.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch.nn.functional import layer_norm, linear

from rwkv_server.kernels import dispatch, torch_rows
from rwkv_server.kernels.device_plan import DevicePlan, build_device_plan
from rwkv_server.model import reference, weights
from rwkv_server.model.config import RWKV7Config, parse_config

Row = dict[str, Any]
Tensors = Mapping[str, torch.Tensor]

TINY_RECALL = Path(__file__).resolve().parents[2] / "image" / "models" / "tiny-recall"
SHAPES = {
    "0.1B": RWKV7Config(65536, 768, 12, 64, 3072, 64, 64, 32, 128, 1e-5, False),
    "1.5B": RWKV7Config(65536, 2048, 24, 64, 8192, 96, 96, 64, 256, 1e-5, False),
}
BATCHES = (1, 32, 320)
PROMPT = 2048
INNER = {"w": torch.tanh, "a": lambda x: x, "v": lambda x: x, "g": torch.sigmoid}


class BareModel:
    """Weights, states of `slots` requests, and a step over them."""

    def __init__(self, config: RWKV7Config, tensors: Tensors, slots: int) -> None:
        self.config, self.tensors = config, tensors
        embedding = tensors["model.embeddings.weight"]
        device, dtype = embedding.device, embedding.dtype
        # The kernels are those of a GPU also where their interpreter runs them on a CPU.
        self.kernels = dispatch.choose_kernels("cuda")
        size, heads, dim = config.hidden_size, config.num_heads, config.head_dim

        def rows() -> torch.Tensor:
            return torch.zeros(slots, 1, size, dtype=dtype, device=device)

        self.states = [
            (rows(), torch.zeros(slots, heads, dim, dim, device=device), rows())
            for _ in range(config.num_hidden_layers)
        ]
        self.mixes = [
            torch.stack([self._of(layer, f"attn.{name}").view(1, -1) for name in weights.MIXES])
            for layer in range(config.num_hidden_layers)
        ]

    def _of(self, layer: int, name: str) -> torch.Tensor:
        return self.tensors[f"model.layers.{layer}.{name}"]

    def step(self, tokens: torch.Tensor, plan: DevicePlan) -> torch.Tensor:
        """(rows,) → (rows, vocabulary)."""
        x = self.tensors["model.embeddings.weight"][tokens]
        x = self._norm("model.layers.0.pre_norm", x)
        v_first = torch.empty_like(x)
        for layer, (time_shift, wkv, channel_shift) in enumerate(self.states):
            normed = self._norm(f"model.layers.{layer}.attn_norm", x)
            x = x + self._time_mix(layer, normed, v_first, (time_shift, wkv), plan)
            normed = self._norm(f"model.layers.{layer}.ffn_norm", x)
            share = self._of(layer, "ffn.x_k").view(1, 1, -1)
            (mixed,) = self.kernels.mix(normed, channel_shift, share, plan)
            wide = torch.relu_(linear(mixed, self._of(layer, "ffn.key.weight"))).square_()
            x = x + linear(wide, self._of(layer, "ffn.value.weight"))
        return linear(self._norm("model.norm", x), self.tensors["lm_head.weight"])

    def _time_mix(
        self,
        layer: int,
        x: torch.Tensor,
        v_first: torch.Tensor,
        caches: tuple[torch.Tensor, torch.Tensor],
        plan: DevicePlan,
    ) -> torch.Tensor:
        def product(name: str, rows: torch.Tensor) -> torch.Tensor:
            return linear(rows, self._of(layer, f"attn.{name}_proj.weight"))

        xr, xw, xk, xv, xa, xg = self.kernels.mix(x, caches[0], self.mixes[layer], plan).unbind(0)
        gate = self._low_rank(layer, "v", xv) if layer else None
        rows = torch_rows.Projected(
            product("r", xr),
            product("k", xk),
            product("v", xv),
            self._low_rank(layer, "w", xw),
            self._low_rank(layer, "a", xa),
            gate,
        )
        names = ("attn.k_k", "attn.k_a", "attn.r_k", "attn.g_norm.weight", "attn.g_norm.bias")
        k_k, k_a, r_k, weight, bias = (self._of(layer, name) for name in names)
        scales = torch_rows.KeyScales(k_k, k_a)
        heads = self.kernels.prepare(rows, v_first, scales, self.config.head_dim)
        y = self.kernels.wkv7(**heads._asdict(), state=caches[1], plan=plan)
        readout = torch_rows.Readout(r_k, weight, bias, self.config.group_norm_eps)
        return product("o", self.kernels.finish(y, heads, readout, self._low_rank(layer, "g", xg)))

    def _low_rank(self, layer: int, name: str, x: torch.Tensor) -> torch.Tensor:
        prefix = f"model.layers.{layer}.attn.{name}_lora.lora."
        inner = INNER[name](linear(x, self.tensors[f"{prefix}0.weight"]))
        up, bias = self.tensors[f"{prefix}2.weight"], self.tensors.get(f"{prefix}2.bias")
        return linear(inner, up, bias)

    def _norm(self, name: str, x: torch.Tensor) -> torch.Tensor:
        weight, bias = self.tensors[f"{name}.weight"], self.tensors[f"{name}.bias"]
        return layer_norm(x, x.shape[-1:], weight, bias, self.config.norm_eps)


def plan_of(lengths: list[int], device: str, *, fresh: bool) -> DevicePlan:
    """A step of requests in slots 0, 1, 2, …"""
    counts = torch.tensor([0, *lengths], device=device)
    slots = torch.arange(len(lengths), device=device)
    decodes = max(lengths) == 1
    new = torch.full_like(slots, int(fresh))
    return build_device_plan(counts.cumsum(0), slots, new, sum(lengths), decodes=decodes)


def check_parity(device: str, lengths: tuple[int, ...], new_tokens: int) -> Row:
    """Greedy tokens of tiny-recall in fp32, several prompts in one step, as the reference's."""
    config = parse_config(json.loads((TINY_RECALL / "config.json").read_text()))
    tensors: dict[str, torch.Tensor] = {}
    for file in sorted(TINY_RECALL.glob("*.safetensors")):
        tensors |= {name: tensor.float() for name, tensor in load_file(file).items()}
    generator = torch.Generator().manual_seed(11)
    prompts = [torch.randint(1, 256, (n,), generator=generator).tolist() for n in lengths]
    on_device = {name: tensor.to(device) for name, tensor in tensors.items()}
    model = BareModel(config, on_device, len(prompts))
    for states in model.states:
        for state in states:
            state.fill_(float("nan"))  # another request's leftovers
    flat = torch.tensor([token for prompt in prompts for token in prompt], device=device)
    logits = model.step(flat, plan_of(list(lengths), device, fresh=True))
    last = torch.tensor(lengths, device=device).cumsum(0) - 1
    tokens = [logits[last].argmax(-1)]
    decodes = plan_of([1] * len(prompts), device, fresh=False)
    for _ in range(new_tokens - 1):
        tokens.append(model.step(tokens[-1], decodes).argmax(-1))
    found = torch.stack(tokens, dim=1).tolist()
    wanted = [continue_greedily(config, tensors, prompt, new_tokens) for prompt in prompts]
    agreed = int((torch.tensor(found) == torch.tensor(wanted)).sum())
    total = len(prompts) * new_tokens
    return {"check": "greedy tokens of tiny-recall", "agreed": agreed, "of": total} | {
        "ok": agreed == total
    }


def continue_greedily(
    config: RWKV7Config, tensors: Tensors, prompt: list[int], count: int
) -> list[int]:
    """Greedy tokens after a prompt by the plain reference."""
    state = reference.new_state(config, torch.float32)
    rows, tokens = prompt, []
    for _ in range(count):
        rows = [int(reference.forward(config, tensors, rows, state)[-1].argmax())]
        tokens += rows
    return tokens


def random_weights(config: RWKV7Config, dtype: torch.dtype, device: str) -> dict[str, torch.Tensor]:
    """Weights of a size, whose values don't matter: small, so that nothing overflows."""
    return {
        name: torch.randn(shape, dtype=dtype, device=device).mul_(0.02)
        for name, shape in weights.expected_tensors(config).items()
    }


def measure_throughput(size: str) -> Iterator[Row]:
    """Tokens a second of recorded greedy steps, and of one prompt, in bfloat16."""
    import kernel_stage

    config = SHAPES[size]
    tensors = random_weights(config, torch.bfloat16, "cuda")
    read = sum(t.nbytes for n, t in tensors.items() if n != "model.embeddings.weight")
    for batch in BATCHES:
        model = BareModel(config, tensors, batch)
        plan = plan_of([1] * batch, "cuda", fresh=False)
        tokens = torch.zeros(batch, dtype=torch.int64, device="cuda")

        def step(
            model: BareModel = model, plan: DevicePlan = plan, t: torch.Tensor = tokens
        ) -> None:
            t.copy_(model.step(t, plan).argmax(-1))

        micros = kernel_stage.time_recorded(step)
        state = sum(s.nbytes for states in model.states for s in states)
        yield {
            "time": f"decode without vLLM, {size}, batch {batch}",
            "us": micros,
            "us, not recorded": kernel_stage.time_calls(step),
            "tokens/s": round(1e6 * batch / micros),
            "GB/s": round((read + 2 * state) / micros / 1e3),
        }
    model = BareModel(config, tensors, 1)
    plan = plan_of([PROMPT], "cuda", fresh=True)
    tokens = torch.zeros(PROMPT, dtype=torch.int64, device="cuda")
    micros = kernel_stage.time_recorded(lambda: model.step(tokens, plan), repeats=5)
    rate = round(1e6 * PROMPT / micros)
    yield {"time": f"prompt of {PROMPT} without vLLM, {size}", "us": micros, "tokens/s": rate}
