"""WKV-7 in torch operations over the whole batch: no loop over requests, none over tokens.

One-row segments take one step together. Longer ones are cut into chunks in which the recurrence is
solved as a triangular system, all chunks at once; what is left is serial: one small matrix product
per chunk carries the state on, for all segments together.

Within a chunk, with W_t the product of the decays up to row t and S the state before the chunk:

    u_t = kk_t^T S_{t-1}                      what row t removes
    S_t = diag(W_t) (S - sum_{s<=t} (b_s/W_s) u_s + sum_{s<=t} (k_s/W_s) v_s),  b = kk * a

Put into each other, u = (I + L)^-1 (A S + M v) with L, M strictly lower triangular. So the chunk's
last state is G S + H and its output P S + Q, with G, H, P, Q free of S.
"""

from __future__ import annotations

import torch

from rwkv_server.kernels.plan import CHUNK, Chunks, Plan


def wkv7(
    r: torch.Tensor,
    log_w: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    kk: torch.Tensor,
    a: torch.Tensor,
    state: torch.Tensor,
    plan: Plan,
) -> torch.Tensor:
    """Same contract as `naive.wkv7`."""
    rows = (r, log_w, k, v, kk, kk * a)
    if plan.chunks is None and 0 < len(plan.single_rows) == len(r):
        return _step(rows, state, plan.single_slots)
    out = torch.zeros_like(v)
    if len(plan.single_rows):
        picked = tuple(x.index_select(0, plan.single_rows) for x in rows)
        out.index_copy_(0, plan.single_rows, _step(picked, state, plan.single_slots))
    if plan.chunks is not None:
        out.index_copy_(0, plan.chunks.targets, _chunked(rows, state, plan.chunks))
    return out


def _step(rows: tuple[torch.Tensor, ...], state: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """One row for each of `slots`, all at once."""
    r, log_w, k, v, kk, b = rows
    count, heads, size = k.shape
    s = state.index_select(0, slots).view(count * heads, size, -1)
    removed = torch.bmm(kk.reshape(-1, 1, size), s)
    left = torch.stack((b, k), dim=-1).view(count * heads, size, 2)
    right = torch.cat((-removed, v.reshape(count * heads, 1, -1)), dim=1)
    s.mul_(log_w.exp().reshape(count * heads, size, 1)).baddbmm_(left, right)
    state.index_copy_(0, slots, s.view(count, heads, size, -1))
    return torch.bmm(r.reshape(-1, 1, size), s).view(count, heads, -1)


def _chunked(rows: tuple[torch.Tensor, ...], state: torch.Tensor, chunks: Chunks) -> torch.Tensor:
    """All long segments; returns their rows in the order of `chunks.targets`."""
    # Padding is a row that changes nothing: no decay, nothing removed, nothing added.
    r, log_w, k, v, kk, b = (_by_chunk(x, chunks) for x in rows)
    decay = log_w.cumsum(dim=2)
    grow = (-decay).exp()
    reads = r * decay.exp()
    removes = kk * (decay - log_w).exp()
    b_grown, k_grown = (b * grow).mT, (k * grow).mT
    system = (removes @ b_grown).tril_(-1)
    known = torch.cat((removes, (removes @ k_grown).tril_(-1) @ v), dim=-1)
    # u = (I + L)^-1 (A S + M v), both parts solved together
    solved = torch.linalg.solve_triangular(system, known, upper=False, unitriangular=True)
    size = k.shape[-1]
    u_state, u_const = solved[..., :size], solved[..., size:]

    mixed = (reads @ b_grown).tril_()
    p = _minus(reads, mixed, u_state)
    q = _minus((reads @ k_grown).tril_() @ v, mixed, u_const)
    last = decay[:, :, -1:, :].exp().mT
    identity = torch.eye(size, dtype=k.dtype, device=k.device).expand(*k.shape[:2], -1, -1)
    g = _minus(identity, b_grown, u_state)
    h = _minus(k_grown @ v, b_grown, u_const)
    before = _carry(g.mul_(last), h.mul_(last), state, chunks)
    out = (p @ before + q).transpose(1, 2)
    return out[chunks.mask[:, :, 0, 0]]


def _minus(start: torch.Tensor, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Subtract left @ right from start for each chunk and head, in one pass."""
    parts = (x.flatten(0, 1) for x in (start, left, right))
    return torch.baddbmm(*parts, alpha=-1).view_as(start)


def _by_chunk(x: torch.Tensor, chunks: Chunks) -> torch.Tensor:
    """(rows, heads, size) → (chunks, heads, CHUNK, size), padding zeroed by assignment."""
    picked = x.index_select(0, chunks.rows.flatten()).view(-1, CHUNK, *x.shape[1:])
    return picked.masked_fill_(~chunks.mask, 0).transpose(1, 2).contiguous()


def _carry(g: torch.Tensor, h: torch.Tensor, state: torch.Tensor, chunks: Chunks) -> torch.Tensor:
    """Take each segment's state through its chunks; returns the state before every chunk."""
    before = torch.empty_like(h)
    current = state.index_select(0, chunks.slots)
    shape = current.shape[1:]
    for step in chunks.steps:
        s = current[: len(step)]
        before.index_copy_(0, step, s)
        gs, hs = g.index_select(0, step).flatten(0, 1), h.index_select(0, step).flatten(0, 1)
        current[: len(step)] = torch.baddbmm(hs, gs, s.flatten(0, 1)).view(-1, *shape)
    state.index_copy_(0, chunks.slots, current)
    return before
