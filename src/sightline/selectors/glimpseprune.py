"""GlimpsePrune: a trained token behind the prompt takes a glimpse, and a small trained network says what it saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import linear, scaled_dot_product_attention, silu

from sightline.core.selection import LayerSelector, LayerState, Layout, Parity, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.heads import Headed, HeadFile, Parts, biased, rms_norm, rotate, split_heads
from sightline.selectors.scores import top

FUSER_EPS = 1e-6
LLAVA: dict[str, Any] = {
    "model_type": "llava_llama_gp", "reduce_layer": 21, "selected_layers": [21], "le_layers": list(range(32)),
    "selected_visual_layers": [23, 17, 11, 5], "attn_fuse_num_heads": 4, "use_attention_logits": False,
    "rms_norm_eps": 1e-5,
}  # fmt: skip
"""The settings that are read, as published for LLaVA-1.5-7B; a head goes by its own."""
ALWAYS: dict[str, Any] = {
    "attn_fuse_type": "AttnFuserV1", "attn_fuse_hidden_act": "silu", "attn_fuse_global": True,
    "le_norm_type": "rmsnorm", "le_length": 1, "ori_attn_supervision": False,
}  # fmt: skip
"""Settings that all published heads share; no others are implemented."""


def grid_angles(rows: int, columns: int, width: int, like: Tensor) -> Tensor:
    """(rows * columns, width): one half of the frequencies turns with the row, the other with the column, twice."""
    frequency = 1e4 ** -(torch.arange(0, width // 2, 2, device=like.device, dtype=torch.float32) / (width // 2))
    y, x = torch.meshgrid(*(torch.arange(size, device=like.device) for size in (rows, columns)), indexing="ij")
    return torch.outer(torch.stack([y, x], -1).flatten(), frequency).view(rows * columns, -1).repeat(1, 2)


def importance(attention: Tensor, states: list[Tensor], layout: Layout, head: dict[str, Tensor], heads: int) -> Tensor:
    """(N,) logits of a token's importance, from the glimpse's (N, H) attention and the tower's (N, C) states.

    z = W_in a; per layer z += O attend(q, k, v), z += MLP(norm z), where q and k are made of norm z beside the
    projected states of one layer of the tower, v of norm z alone; the logit is W_out z. Tokens attend within blocks.
    """

    def project(name: str, x: Tensor) -> Tensor:
        return linear(x, head[f"attn_fuser.{name}.weight"], head.get(f"attn_fuser.{name}.bias"))

    hidden = project("attn_in_proj", attention)
    found, sizes = [], [rows * columns for rows, columns in layout]
    for place, (rows, columns) in enumerate(layout):
        here = slice(sum(sizes[:place]), sum(sizes[: place + 1]))
        z = hidden[here]
        for index, seen in enumerate(states):
            layer = f"layers.{index}"
            normed = rms_norm(z, head[f"attn_fuser.{layer}.norm1.weight"], FUSER_EPS)
            both = torch.cat([normed, project(f"cond_in_projs.{index}", seen[here])], dim=-1)
            width = both.shape[1] // heads
            angles = grid_angles(rows, columns, width, both)
            query, key = (
                rotate(
                    split_heads(project(f"{layer}.attn.{name}_proj", both), width).float(), angles.cos(), angles.sin()
                )
                for name in "qk"
            )
            value = split_heads(project(f"{layer}.attn.v_proj", normed), z.shape[1] // heads)
            attended = scaled_dot_product_attention(query.to(value)[None], key.to(value)[None], value[None])[0]
            z = z + project(f"{layer}.attn.o_proj", attended.transpose(0, 1).flatten(1))
            normed = rms_norm(z, head[f"attn_fuser.{layer}.norm2.weight"], FUSER_EPS)
            gate, up = (project(f"{layer}.mlp.{name}_proj", normed) for name in ("gate", "up"))
            z = z + project(f"{layer}.mlp.down_proj", silu(gate) * up)
        found.append(project(f"attn_out_projs.{len(states) - 1}", z)[:, 0])
    return torch.cat(found)


@SELECTORS.register("glimpseprune")
@dataclass(frozen=True)
class GlimpsePrune(Headed, LayerSelector):
    """A glimpse token follows the prompt through two thirds of the layers; what it looks at there is kept.

    Reference: Zeng et al., "A Glimpse to Compress: Dynamic Visual Token Pruning for Large Vision-Language Models"
    (2025).

    Needs: ``head``, published for LLaVA-1.5 (7B, 13B) and Qwen2.5-VL (3B, 7B): a learned embedding for every layer,
    which is added to the glimpse token's state there, and the predictor; the configuration of its training with it.
    Score: the glimpse token's attention to a visual token, a number for each head (logarithms of weights in LLaVA,
    plain scores in Qwen), and the tower's states at four depths go through the predictor (``importance``). Deletion,
    one cut, K highest, ties to the lower index.
    Schedule: one cut after the layer that the head was trained for (21 of 32, 26 of 40, 18 of 28, 23 of 36, from 0).
    Parity: official-algorithm. Logits and their K highest equal the public code's; there K is a maximum, and only
    tokens of a probability above one half are kept. It also takes pruned tokens out of the caches of layers that have
    run.
    Degenerate input: equal logits keep the first tokens.
    """

    name: ClassVar[str] = "glimpseprune"
    parity: ClassVar[Parity] = "official-algorithm"
    parts: ClassVar[Parts] = {
        **biased("attn_fuser.attn_in_proj", "fuser size", "attention heads"),
        **biased("attn_fuser.cond_in_projs.{}", "condition size", "width of the vision tower"),
        "attn_fuser.layers.{}.norm1.weight": ("fuser size",),
        "attn_fuser.layers.{}.norm2.weight": ("fuser size",),
        "attn_fuser.layers.{}.attn.q_proj.weight": ("both sizes", "both sizes"),
        "attn_fuser.layers.{}.attn.k_proj.weight": ("both sizes", "both sizes"),
        "attn_fuser.layers.{}.attn.v_proj.weight": ("fuser size", "fuser size"),
        "attn_fuser.layers.{}.attn.o_proj.weight": ("fuser size", "fuser size"),
        **biased("attn_fuser.layers.{}.mlp.gate_proj", "inner size", "fuser size"),
        **biased("attn_fuser.layers.{}.mlp.up_proj", "inner size", "fuser size"),
        **biased("attn_fuser.layers.{}.mlp.down_proj", "fuser size", "inner size"),
        **biased("attn_fuser.attn_out_projs.{last}", 1, "fuser size"),
        "learnable_embeddings": ("layers", 1, "width"),
        **biased("le_proj", "width", "width"),
        "le_norm.weight": ("width",),
    }

    @classmethod
    def unusable(cls, head: HeadFile) -> str:
        own, layers = head.settings, head.sizes["layers"]
        if missing := [name for name in LLAVA if name not in own]:
            return f"has no {missing[0]} in the config of its header"
        cut = own["reduce_layer"]
        wanted = ALWAYS | {"selected_layers": [cut], "le_layers": list(range(layers))}
        if odd := [name for name, value in wanted.items() if own.get(name, value) != value]:
            return f"was trained with {odd[0]} = {own[odd[0]]}, where {wanted[odd[0]]} is implemented"
        fits = 0 <= cut < layers - 1 and len(own["selected_visual_layers"]) == head.layers
        return "" if fits else "has other numbers of layers than the config of its header"

    @property
    def settings(self) -> Mapping[str, Any]:
        return self.opened.settings if "head" in vars(self) else LLAVA | {"selected_visual_layers": [-1]}

    @property
    def states(self) -> list[str]:
        """Of the tower, by the order of the predictor's layers; Qwen's are counted by blocks, LLaVA's by states."""
        ahead = int("qwen" in self.settings["model_type"])
        return [f"vision.hidden@{layer + ahead}" for layer in self.settings["selected_visual_layers"]]

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"lm.scout", *self.states})

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        cut = max(0, min(self.settings["reduce_layer"], layers - 2))
        return {**dict.fromkeys(range(cut), n), cut: k}

    def scout(self, layer: int, like: Tensor) -> Tensor:
        head = self.tensors(like)
        own = linear(head["learnable_embeddings"][layer, 0], head["le_proj.weight"], head["le_proj.bias"])
        return rms_norm(own, head["le_norm.weight"], self.settings["rms_norm_eps"])

    def cut(self, state: LayerState, k: int) -> Selection:
        scores = state.signals["lm.scout"]
        scores = scores if self.settings["use_attention_logits"] else scores.log_softmax(dim=-1)
        attention = scores.index_select(1, state.image.to(scores.device)).T
        states = [state.signals[name].to(attention) for name in self.states]
        head, heads = self.tensors(attention), self.settings["attn_fuse_num_heads"]
        return Selection(anchors=top(importance(attention, states, state.layout, head, heads), k))
