"""Gemma-3-text in plain PyTorch, for training the demo model on a CPU core or a GPU.

Parameter names are those of Hugging Face (`model.layers.N...`), so the state dict is the checkpoint.
It deliberately has no KV cache except the few lines of `generate` in evaluate.py: this is the training side.
"""
import dataclasses
import math

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Config:
    vocab_size: int = 4096
    hidden: int = 256
    mlp: int = 640
    layers: int = 4
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    window: int = 256
    pattern: int = 2  # layer i is full attention iff (i + 1) % pattern == 0
    rope_theta: float = 1000000.0
    rope_local: float = 10000.0
    max_positions: int = 4096
    eps: float = 1e-6

    def is_full(self, layer):
        return (layer + 1) % self.pattern == 0

    def embed_scale(self):
        # Gemma rounds sqrt(hidden) to bfloat16; exact for hidden 256.
        return float(torch.tensor(math.sqrt(self.hidden)).to(torch.bfloat16))


class RMSNorm(nn.Module):
    """x / rms(x) * (1 + weight), computed in float32."""

    def __init__(self, dim, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x):
        x = x.float()
        return F.rms_norm(x, (x.shape[-1],), 1.0 + self.weight, self.eps)


def rope_table(positions, head_dim, theta):
    inv = theta ** (-torch.arange(0, head_dim, 2, device=positions.device).float() / head_dim)
    angle = positions.float()[:, None] * inv[None, :]
    angle = torch.cat([angle, angle], dim=-1)
    return angle.cos(), angle.sin()


def apply_rope(x, cos, sin):
    half = x.shape[-1] // 2
    rotated = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + rotated * sin


def local_attention(q, k, v, window, scale):
    """Sliding-window attention in blocks of `window` rows: cost O(T * window), not O(T^2)."""
    b, h, rows, d = q.shape
    q, k, v = (F.pad(x, (0, 0, 0, -rows % window)) for x in (q, k, v))
    t = q.shape[2]
    n = t // window

    def blocks(x):
        return x.reshape(b, h, n, window, d)

    def with_previous(x):
        x = blocks(x)
        previous = F.pad(x, (0, 0, 0, 0, 1, 0))[:, :, :-1]
        return torch.cat([previous, x], dim=3)

    row = torch.arange(window, device=q.device)[:, None] + window
    column = torch.arange(2 * window, device=q.device)[None, :]
    near = (column <= row) & (column > row - window)
    mask = near[None].expand(n, -1, -1).clone()
    mask[0, :, :window] = False
    bias = torch.zeros(mask.shape, dtype=q.dtype, device=q.device).masked_fill(~mask, -1e9)
    # [b, h, n] becomes the batch of one SDPA call.
    out = F.scaled_dot_product_attention(
        blocks(q).transpose(1, 2).reshape(b * n, h, window, d),
        with_previous(k).transpose(1, 2).reshape(b * n, h, 2 * window, d),
        with_previous(v).transpose(1, 2).reshape(b * n, h, 2 * window, d),
        attn_mask=bias.repeat(b, 1, 1)[:, None], scale=scale)
    return out.reshape(b, n, h, window, d).transpose(1, 2).reshape(b, h, t, d)[:, :, :rows]


class Attention(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        self.c, self.full = c, c.is_full(layer)
        self.q_proj = nn.Linear(c.hidden, c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.hidden, bias=False)
        self.q_norm = RMSNorm(c.head_dim, c.eps)
        self.k_norm = RMSNorm(c.head_dim, c.eps)

    def forward(self, x, rope, cache=None):
        c = self.c
        b, t, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(b, t, c.heads, c.head_dim)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(b, t, c.kv_heads, c.head_dim)).transpose(1, 2)
        v = self.v_proj(x).view(b, t, c.kv_heads, c.head_dim).transpose(1, 2)
        q, k = apply_rope(q, *rope).to(v.dtype), apply_rope(k, *rope).to(v.dtype)
        if cache is not None:
            if "k" in cache:
                k, v = torch.cat([cache["k"], k], dim=2), torch.cat([cache["v"], v], dim=2)
            cache["k"], cache["v"] = k, v
        total = k.shape[2]
        k = k.repeat_interleave(c.heads // c.kv_heads, dim=1)
        v = v.repeat_interleave(c.heads // c.kv_heads, dim=1)
        scale = c.head_dim ** -0.5
        if total == t and (self.full or t <= c.window):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
        elif total == t:
            out = local_attention(q, k, v, c.window, scale)
        else:
            row = torch.arange(total - t, total, device=x.device)[:, None]
            column = torch.arange(total, device=x.device)[None, :]
            mask = column <= row
            if not self.full:
                mask &= column > row - c.window
            out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)
        return self.o_proj(out.transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden, c.mlp, bias=False)
        self.up_proj = nn.Linear(c.hidden, c.mlp, bias=False)
        self.down_proj = nn.Linear(c.mlp, c.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.gelu(self.gate_proj(x), approximate="tanh") * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c, layer):
        super().__init__()
        self.self_attn = Attention(c, layer)
        self.mlp = Mlp(c)
        self.input_layernorm = RMSNorm(c.hidden, c.eps)
        self.post_attention_layernorm = RMSNorm(c.hidden, c.eps)
        self.pre_feedforward_layernorm = RMSNorm(c.hidden, c.eps)
        self.post_feedforward_layernorm = RMSNorm(c.hidden, c.eps)

    def forward(self, x, rope, cache=None):
        x = x + self.post_attention_layernorm(self.self_attn(self.input_layernorm(x), rope, cache))
        return x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))


class Body(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden)
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c.layers))
        self.norm = RMSNorm(c.hidden, c.eps)


class Gemma3(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        self.embed_scale = c.embed_scale()
        self.model = Body(c)
        for name, p in self.named_parameters():
            if p.ndim == 2:
                std = c.hidden ** -0.5
                nn.init.normal_(p, std=std)

    def hidden_states(self, tokens, caches=None):
        """tokens [B, T] -> final normed states [B, T, hidden] (float32)."""
        c = self.c
        past = caches[0]["k"].shape[2] if caches and "k" in caches[0] else 0
        positions = torch.arange(past, past + tokens.shape[1], device=tokens.device)
        full = rope_table(positions, c.head_dim, c.rope_theta)
        local = rope_table(positions, c.head_dim, c.rope_local)
        x = self.model.embed_tokens(tokens) * self.embed_scale
        for i, layer in enumerate(self.model.layers):
            x = layer(x, full if c.is_full(i) else local, caches[i] if caches else None)
        return self.model.norm(x)

    def logits(self, states):
        return F.linear(states, self.model.embed_tokens.weight)

    def forward(self, tokens, caches=None):
        return self.logits(self.hidden_states(tokens, caches))
