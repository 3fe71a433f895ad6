"""The network in numpy, token by token for a batch of chats; it judges the trained weights."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
HEAD = 64
DECAY_SCALE = np.float32(-0.6065306597126334)


@dataclass
class State:
    """Per layer: both token shifts (B, C) and the recurrent state (B, H, value, key)."""

    attn_shift: list[Array] = field(default_factory=list)
    ffn_shift: list[Array] = field(default_factory=list)
    wkv: list[Array] = field(default_factory=list)


class Reference:
    """Weights by fla's names."""

    def __init__(self, weights: dict[str, Array]) -> None:
        """Keep the weights, in fp32."""
        self.weights = {name: np.asarray(w, np.float32) for name, w in weights.items()}
        self.layers = 1 + max(int(name.split(".")[2]) for name in weights if ".layers." in name)
        self.width = self.weights["model.embeddings.weight"].shape[1]

    def zero_state(self, batch: int) -> State:
        """Return the state before the first token."""
        heads = self.width // HEAD
        return State(
            [np.zeros((batch, self.width), np.float32) for _ in range(self.layers)],
            [np.zeros((batch, self.width), np.float32) for _ in range(self.layers)],
            [np.zeros((batch, heads, HEAD, HEAD), np.float32) for _ in range(self.layers)],
        )

    def step(self, ids: npt.NDArray[np.int64], state: State) -> Array:
        """Feed one id per chat, change the state, return logits (B, vocabulary)."""
        w = self.weights
        x = _layer_norm(w["model.embeddings.weight"][ids], w, "model.layers.0.pre_norm")
        v_first: Array | None = None
        for index in range(self.layers):
            name = f"model.layers.{index}"
            normed = _layer_norm(x, w, f"{name}.attn_norm")
            out, v_first = self._attention(normed, state, index, v_first)
            x = x + out
            normed = _layer_norm(x, w, f"{name}.ffn_norm")
            mixed = normed + (state.ffn_shift[index] - normed) * w[f"{name}.ffn.x_k"]
            state.ffn_shift[index] = normed
            hidden: Array = np.maximum(mixed @ w[f"{name}.ffn.key.weight"].T, 0) ** 2
            x = x + hidden @ w[f"{name}.ffn.value.weight"].T
        return _layer_norm(x, w, "model.norm") @ w["lm_head.weight"].T

    def _attention(
        self, x: Array, state: State, index: int, v_first: Array | None
    ) -> tuple[Array, Array]:
        w, name = self.weights, f"model.layers.{index}.attn"
        batch, heads = len(x), self.width // HEAD
        shift = state.attn_shift[index] - x
        state.attn_shift[index] = x
        mixed = {key: x + shift * w[f"{name}.x_{key}"].reshape(-1) for key in "rwkvag"}
        r, k, v = (mixed[key] @ w[f"{name}.{key}_proj.weight"].T for key in "rkv")
        decay = np.exp(DECAY_SCALE * _sigmoid(self._lora(mixed["w"], f"{name}.w_lora", np.tanh)))
        a = _sigmoid(self._lora(mixed["a"], f"{name}.a_lora"))
        g = self._lora(mixed["g"], f"{name}.g_lora", _sigmoid)
        if v_first is None:
            v_first = v
        else:
            v = v + (v_first - v) * _sigmoid(self._lora(mixed["v"], f"{name}.v_lora"))
        kk = (k * w[f"{name}.k_k"]).reshape(batch, heads, HEAD)
        kk = kk / np.maximum(np.linalg.norm(kk, axis=-1, keepdims=True), 1e-12)
        k = k * (1 + (a - 1) * w[f"{name}.k_a"])
        r, k, v, a, decay = (t.reshape(batch, heads, HEAD) for t in (r, k, v, a, decay))
        s = state.wkv[index]
        removed = (s @ kk[..., None]) * (kk * a)[..., None, :]
        s = s * decay[..., None, :] - removed + v[..., None] * k[..., None, :]
        state.wkv[index] = s
        y = (s @ r[..., None])[..., 0]
        y = y - y.mean(-1, keepdims=True)
        y = y / np.sqrt((y**2).mean(-1, keepdims=True) + HEAD * 1e-5)
        y = y.reshape(batch, -1) * w[f"{name}.g_norm.weight"] + w[f"{name}.g_norm.bias"]
        bonus = (r * k * w[f"{name}.r_k"]).sum(-1, keepdims=True) * v
        return ((y + bonus.reshape(batch, -1)) * g) @ w[f"{name}.o_proj.weight"].T, v_first

    def _lora(
        self, x: Array, name: str, activation: Callable[[Array], Array] = lambda t: t
    ) -> Array:
        w = self.weights
        out = activation(x @ w[f"{name}.lora.0.weight"].T) @ w[f"{name}.lora.2.weight"].T
        return out + w.get(f"{name}.lora.2.bias", np.float32(0))


def _layer_norm(x: Array, weights: dict[str, Array], name: str) -> Array:
    centered = x - x.mean(-1, keepdims=True)
    scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
    return np.asarray(scaled * weights[f"{name}.weight"] + weights[f"{name}.bias"], np.float32)


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)), np.float32)
