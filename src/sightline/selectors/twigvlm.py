"""TwigVLM: a few layers trained on an early layer's output show where the answer will look."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention, silu

from sightline.core.selection import LayerSelector, LayerState, Parity, Ranges, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.fastv import attention_score
from sightline.selectors.heads import Headed, Parts, rms_norm, rotate, split_heads
from sightline.selectors.scores import top


def last_attention(hidden: Tensor, rotary: Tensor, head: dict[str, Tensor], layers: int, eps: float) -> Tensor:
    """(H, L) attention of the last position in the last of the twig's ``layers``, which read the (L, D) states in turn.

    Each is a Llama layer: x += O attend(norm(x)), x += W_down (silu(W_gate norm(x)) * W_up norm(x)). Of the last one
    the keys and one query are all that is needed.
    """
    (cos, sin), width = rotary.to(hidden.dtype), rotary.shape[-1]
    for index in range(layers):
        own = {name.partition(".")[2]: part for name, part in head.items() if name.startswith(f"{index}.")}
        normed = rms_norm(hidden, own["input_layernorm.weight"], eps)
        query, key, value = (split_heads(normed @ own[f"self_attn.{part}_proj.weight"].T, width) for part in "qkv")
        query, key = rotate(query, cos, sin), rotate(key, cos, sin)
        if index == layers - 1:
            keys = key.repeat_interleave(len(query) // len(key), dim=0)
            return torch.softmax((query[:, -1:] @ keys.mT)[:, 0].float() * width**-0.5, dim=-1)
        attended = scaled_dot_product_attention(query[None], key[None], value[None], is_causal=True, enable_gqa=True)
        hidden = hidden + attended[0].transpose(0, 1).flatten(1) @ own["self_attn.o_proj.weight"].T
        normed = rms_norm(hidden, own["post_attention_layernorm.weight"], eps)
        gate, up = (normed @ own[f"mlp.{part}_proj.weight"].T for part in ("gate", "up"))
        hidden = hidden + (silu(gate) * up) @ own["mlp.down_proj.weight"].T
    raise AssertionError("a twig has at least one layer")


@SELECTORS.register("twigvlm")
@dataclass(frozen=True)
class TwigVLM(Headed, LayerSelector):
    """A twig grown on an early layer looks ahead; what its last layer attends to goes on past the early one.

    Reference: Shao et al., "Growing a Twig to Accelerate Large Vision-Language Models" (ICCV 2025), its twig-guided
    token pruning; speculative decoding with the twig, which is about speed and not about tokens, is left out.

    Needs: ``head``, the twig's Llama layers as published for LLaVA-1.5-7B: three, trained on the output of the first
    two. Its norm and output head belong to speculation and are not read.
    Score: head mean of the last prompt token's attention in the twig's last layer (``last_attention``). Deletion, one
    cut, K highest scores, ties to the lower index.
    Schedule: K tokens continue once ``full_layers`` have run; in a shallow model the cut moves up to the last layer but
    one.
    Parity: official-algorithm. The choice equals the public code's. There a budget is a mean over layers, and layer 24
    of 32 on read no visual token at all; here K tokens stay to the end.
    Degenerate input: equal scores keep the first tokens.
    """

    name: ClassVar[str] = "twigvlm"
    parity: ClassVar[Parity] = "official-algorithm"
    needs: ClassVar[frozenset[str]] = frozenset({"lm.rotary"})
    ranges: ClassVar[Ranges] = {"full_layers": (1, inf), "eps": (0.0, 1.0)}
    parts: ClassVar[Parts] = {
        "{}.self_attn.q_proj.weight": ("query size", "width"),
        "{}.self_attn.k_proj.weight": ("key size", "width"),
        "{}.self_attn.v_proj.weight": ("key size", "width"),
        "{}.self_attn.o_proj.weight": ("width", "query size"),
        "{}.mlp.gate_proj.weight": ("inner size", "width"),
        "{}.mlp.up_proj.weight": ("inner size", "width"),
        "{}.mlp.down_proj.weight": ("width", "inner size"),
        "{}.input_layernorm.weight": ("width",),
        "{}.post_attention_layernorm.weight": ("width",),
    }
    prefixes: ClassVar[tuple[str, ...]] = ("model.layers.", "model.twig_layers.", "layers.")

    full_layers: int = 2
    """Layers that see every token: what the twig was trained on."""
    eps: float = 1e-5
    """Of its norms."""

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {max(0, min(self.full_layers - 1, layers - 2)): k}

    def cut(self, state: LayerState, k: int) -> Selection:
        head, rotary = self.tensors(state.hidden), state.signals["lm.rotary"]
        row = last_attention(state.hidden, rotary, head, self.opened.layers, self.eps)
        return Selection(anchors=top(attention_score(row, state.image), k))
