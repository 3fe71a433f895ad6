"""The RWKV-7 that is trained: whole rows at once, with fla's parameter names.

Only the training forward is here; the engine has a forward of its own, and ``evaluate.py`` one that
goes token by token.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from tiny_recall import wkv

DECAY_SCALE = -0.6065306597126334  # -exp(-1/2)
MIXES = ("r", "w", "k", "v", "a", "g")


@dataclass(frozen=True)
class Shape:
    """The sizes of the network; LoRA ranks are of decay, in-context rate, value mix and gate."""

    layers: int = 3
    width: int = 128
    head: int = wkv.HEAD
    hidden: int = 512
    vocabulary: int = 320
    ranks: tuple[int, int, int, int] = (16, 16, 16, 32)
    norm_eps: float = 1e-5

    @property
    def heads(self) -> int:
        """Number of heads of a layer."""
        return self.width // self.head


class Lora(nn.Module):
    """A low-rank map with a bias of its own; fla counts the activation as element 1."""

    def __init__(self, width: int, rank: int, activation: nn.Module, bias: bool = True) -> None:
        """Create the two maps; the weights are set by ``initial.py``."""
        super().__init__()
        self.lora = nn.Sequential(
            nn.Linear(width, rank, bias=False), activation, nn.Linear(rank, width, bias=bias)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, T, C) to (B, T, C)."""
        return self.lora(x).float()


class Attention(nn.Module):
    """Time mixing: token shift, projections, the recurrence, group norm, bonus and gate."""

    def __init__(self, shape: Shape, layer: int) -> None:
        """Create the weights of layer number ``layer``."""
        super().__init__()
        width, heads = shape.width, shape.heads
        self.heads = heads
        for name in MIXES:
            setattr(self, f"x_{name}", nn.Parameter(torch.empty(1, 1, width)))
        self.k_k = nn.Parameter(torch.empty(width))
        self.k_a = nn.Parameter(torch.empty(width))
        self.r_k = nn.Parameter(torch.empty(heads, shape.head))
        decay, rate, value, gate = shape.ranks
        self.w_lora = Lora(width, decay, nn.Tanh())
        self.a_lora = Lora(width, rate, nn.Identity())
        if layer > 0:
            self.v_lora = Lora(width, value, nn.Identity())
        self.g_lora = Lora(width, gate, nn.Sigmoid(), bias=False)
        self.r_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        self.g_norm = nn.GroupNorm(heads, width, eps=shape.head * shape.norm_eps)

    def forward(
        self, x: torch.Tensor, v_first: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the output and the first layer's values, all (B, T, C)."""
        batch, time, width = x.shape
        mixes = torch.stack([getattr(self, f"x_{name}") for name in MIXES])
        mixed = torch.addcmul(x, token_shift(x) - x, mixes).unbind(0)
        xr, xw, xk, xv, xa, xg = mixed
        r, k, v = self.r_proj(xr).float(), self.k_proj(xk).float(), self.v_proj(xv).float()
        w = torch.exp(DECAY_SCALE * torch.sigmoid(self.w_lora(xw)))
        a = torch.sigmoid(self.a_lora(xa))
        if v_first is None:
            v_first = v
        else:
            v = torch.lerp(v, v_first, torch.sigmoid(self.v_lora(xv)))
        by_head = (batch, time, self.heads, -1)
        kk = functional.normalize((k * self.k_k).view(by_head), dim=-1)
        k = (k * (1 + (a - 1) * self.k_a)).view(by_head)
        r, v_heads = r.view(by_head), v.view(by_head)
        y = wkv.wkv(r, w.view(by_head), k, v_heads, -kk, kk * a.view(by_head))
        y = self.g_norm(y.reshape(batch * time, width)).view(batch, time, width)
        bonus = (r * k * self.r_k).sum(-1, keepdim=True) * v_heads
        return self.o_proj((y + bonus.reshape(x.shape)) * self.g_lora(xg)).float(), v_first


class FeedForward(nn.Module):
    """Channel mixing: token shift and a squared-ReLU layer."""

    def __init__(self, shape: Shape) -> None:
        """Create the weights."""
        super().__init__()
        self.x_k = nn.Parameter(torch.empty(shape.width))
        self.key = nn.Linear(shape.width, shape.hidden, bias=False)
        self.value = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (B, T, C) to (B, T, C)."""
        mixed = torch.addcmul(x, token_shift(x) - x, self.x_k)
        return self.value(torch.relu(self.key(mixed)).square()).float()


class Layer(nn.Module):
    """One layer; the first also norms the embedding."""

    def __init__(self, shape: Shape, layer: int) -> None:
        """Create the parts of layer number ``layer``."""
        super().__init__()
        if layer == 0:
            self.pre_norm = nn.LayerNorm(shape.width, eps=shape.norm_eps)
        self.attn_norm = nn.LayerNorm(shape.width, eps=shape.norm_eps)
        self.ffn_norm = nn.LayerNorm(shape.width, eps=shape.norm_eps)
        self.attn = Attention(shape, layer)
        self.ffn = FeedForward(shape)

    def forward(
        self, x: torch.Tensor, v_first: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the output and the first layer's values, both (B, T, C)."""
        if v_first is None:
            x = self.pre_norm(x)
        out, v_first = self.attn(self.attn_norm(x), v_first)
        x = x + out
        return x + self.ffn(self.ffn_norm(x)), v_first


class Body(nn.Module):
    """Embedding, layers and the last norm."""

    def __init__(self, shape: Shape) -> None:
        """Create the embedding and all layers."""
        super().__init__()
        self.embeddings = nn.Embedding(shape.vocabulary, shape.width)
        self.layers = nn.ModuleList(Layer(shape, layer) for layer in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width, eps=shape.norm_eps)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Map ids (B, T) to hidden states (B, T, C)."""
        x = self.embeddings(ids)
        v_first: torch.Tensor | None = None
        for layer in self.layers:
            x, v_first = layer(x, v_first)
        return self.norm(x)


class TinyRwkv(nn.Module):
    """The language model; ``state_dict`` has fla's names and shapes."""

    def __init__(self, shape: Shape) -> None:
        """Create the network with torch's default weights; ``initial.py`` sets better ones."""
        super().__init__()
        self.shape = shape
        self.model = Body(shape)
        self.lm_head = nn.Linear(shape.width, shape.vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Map ids (B, T) to logits (B, T, vocabulary)."""
        return self.lm_head(self.model(ids)).float()


def token_shift(x: torch.Tensor) -> torch.Tensor:
    """Return x one step later, with zeros at the first step."""
    return functional.pad(x, (0, 0, 1, -1))
