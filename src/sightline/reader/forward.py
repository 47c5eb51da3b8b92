"""The stock model's forward for a batch of 448 px scenes, written for training speed.

Same weights, same function, other arithmetic: all images of a batch share one attention call, the patch convolution
is the linear map it equals, and several questions about an image are packed behind one copy of its visual tokens.
A test holds the two forwards together.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sightline.probes.scenes.compose import CANVAS
from sightline.reader import vocabulary

PATCH = 16
SIDE = CANVAS // (2 * PATCH)
"""Visual tokens per side: 14."""
TOKENS = SIDE * SIDE
PATCHES = 4 * TOKENS


def to_patches(images: Tensor) -> Tensor:
    """(B, 3, 448, 448) pixels in 0..255 -> (B, 784, 768) normalised patches, the four of a visual token in a row."""
    batch = images.shape[0]
    grid = (images / 127.5 - 1.0).view(batch, 3, SIDE, 2, PATCH, SIDE, 2, PATCH)
    return grid.permute(0, 2, 5, 3, 6, 1, 4, 7).reshape(batch, PATCHES, 3 * PATCH * PATCH)


def merge_order(device: torch.device | str = "cpu") -> Tensor:
    """(784, 2) int64: row and column of each patch in the order of ``to_patches``."""
    index = torch.arange(PATCHES, device=device)
    token, inner = index // 4, index % 4
    return torch.stack((token // SIDE * 2 + inner // 2, token % SIDE * 2 + inner % 2), dim=1)


def text_positions(lengths_before: int = len(vocabulary.PREFIX)) -> Tensor:
    """(3, prefix + 196 + 1) int64: mRoPE ids of prefix, visual tokens and the closing vision token."""
    before = torch.arange(lengths_before).expand(3, -1)
    rows, columns = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")
    image = torch.stack((torch.zeros(TOKENS, dtype=torch.long), rows.reshape(-1), columns.reshape(-1))) + lengths_before
    return torch.cat((before, image, torch.full((3, 1), lengths_before + SIDE)), dim=1)


SHARED = len(vocabulary.PREFIX) + TOKENS + 1
"""Length of what all questions share: prefix, visual tokens, closing vision token."""
QUESTION_START = len(vocabulary.PREFIX) + SIDE + 1
"""mRoPE id of the first token of every question."""


class BatchedForward:
    """Vision and language forwards over the modules of one stock model (``Qwen3VLForConditionalGeneration``)."""

    def __init__(self, model: Any, device: torch.device | str) -> None:
        self.model = model
        self.visual, self.language = model.model.visual, model.model.language_model
        order = merge_order(device)
        self.positions = order[:, 0] * 2 * SIDE + order[:, 1]
        cos, sin = self.visual.rotary_pos_emb(torch.zeros(1, device=device), order)
        self.cos, self.sin = cos[None, None], sin[None, None]
        self.prefix = torch.tensor(vocabulary.PREFIX, device=device)
        self.closing = torch.tensor([vocabulary.VISION_END], device=device)
        self.shared_positions = text_positions().to(device)

    def see(self, images: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """(B, 3, 448, 448) -> vision states (B, 784, Dv), visual tokens (B, 196, D), DeepStack levels [(B, 196, D)]."""
        visual = self.visual
        weight = visual.patch_embed.proj.weight
        # A still image repeats its frame, so the two temporal slices of the kernel act as their sum.
        kernel = weight.sum(dim=2).reshape(weight.shape[0], -1)
        hidden = F.linear(to_patches(images), kernel, visual.patch_embed.proj.bias)
        hidden = hidden + visual.pos_embed.weight[self.positions]
        deep = []
        for index, block in enumerate(visual.blocks):
            hidden = hidden + self._vision_attention(block.attn, block.norm1(hidden))
            hidden = hidden + block.mlp(block.norm2(hidden))
            if index in visual.deepstack_visual_indexes:
                merger = visual.deepstack_merger_list[visual.deepstack_visual_indexes.index(index)]
                deep.append(self._merge(merger, hidden))
        return hidden, self._merge(visual.merger, hidden), deep

    def read(
        self,
        tokens: Tensor,
        deep: list[Tensor],
        ids: Tensor,
        positions: Tensor,
        mask: Tensor,
        prefix: Tensor | None = None,
    ) -> Tensor:
        """Language states of the question part.

        Parameters
        ----------
        tokens: (B, 196, D); deep: DeepStack levels of the same shape.
        ids: (B, Q) packed questions; positions: (B, Q) mRoPE id of each, equal on the three axes.
        mask: (B, 1, L, L) bool, L = SHARED + Q: who may attend to whom.
        prefix: (B, P) ids before the visual tokens; None: those of a yes/no question for every image.

        Returns (B, Q, D), before the output projection.
        """
        language, batch = self.language, tokens.shape[0]
        embed = language.embed_tokens
        before = embed(self.prefix.expand(batch, -1) if prefix is None else prefix)
        after = embed(torch.cat((self.closing.expand(batch, 1), ids), dim=1))
        hidden = torch.cat((before, tokens.to(before.dtype), after), dim=1)
        shared = self.shared_positions[:, None].expand(-1, batch, -1)
        where = torch.cat((shared, positions.expand(3, -1, -1)), dim=2)
        cos, sin = language.rotary_emb(hidden, where)
        cos, sin = cos[:, None], sin[:, None]
        bias = torch.zeros(mask.shape, dtype=_compute_dtype(hidden), device=mask.device).masked_fill(
            ~mask, float("-inf")
        )
        start, end = len(self.prefix), len(self.prefix) + TOKENS
        for index, layer in enumerate(language.layers):
            hidden = hidden + self._text_attention(layer.self_attn, layer.input_layernorm(hidden), cos, sin, bias)
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
            if index < len(deep):
                hidden = hidden + F.pad(deep[index].to(hidden.dtype), (0, 0, start, hidden.shape[1] - end))
        return language.norm(hidden[:, SHARED:])  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.language.embed_tokens.weight)

    def _merge(self, merger: Any, hidden: Tensor) -> Tensor:
        batch = hidden.shape[0]
        grouped = (batch, TOKENS, merger.hidden_size)
        hidden = merger.norm(hidden.view(grouped)) if merger.use_postshuffle_norm else merger.norm(hidden).view(grouped)
        return merger.linear_fc2(merger.act_fn(merger.linear_fc1(hidden)))  # type: ignore[no-any-return]

    def _vision_attention(self, attention: Any, hidden: Tensor) -> Tensor:
        batch, length, _ = hidden.shape
        query, key, value = attention.qkv(hidden).view(batch, length, 3, attention.num_heads, -1).permute(2, 0, 3, 1, 4)
        query, key = (_rotate(part, self.cos, self.sin).to(value.dtype) for part in (query, key))
        mixed = F.scaled_dot_product_attention(query, key, value)
        return attention.proj(mixed.transpose(1, 2).reshape(batch, length, -1))  # type: ignore[no-any-return]

    def _text_attention(self, attention: Any, hidden: Tensor, cos: Tensor, sin: Tensor, bias: Tensor) -> Tensor:
        shape = (*hidden.shape[:2], -1, attention.head_dim)
        query = attention.q_norm(attention.q_proj(hidden).view(shape)).transpose(1, 2)
        key = attention.k_norm(attention.k_proj(hidden).view(shape)).transpose(1, 2)
        value = attention.v_proj(hidden).view(shape).transpose(1, 2)
        query, key = (_rotate(part, cos, sin).to(value.dtype) for part in (query, key))
        groups = attention.num_key_value_groups
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=attention.scaling)
        return attention.o_proj(mixed.transpose(1, 2).reshape(*hidden.shape[:2], -1))  # type: ignore[no-any-return]


def _compute_dtype(hidden: Tensor) -> torch.dtype:
    """What matrix products run in: the autocast type where autocast is on."""
    kind = hidden.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else hidden.dtype


def _rotate(part: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary position embedding in float32: x * cos + rotate_half(x) * sin."""
    part = part.float()
    first, second = part.chunk(2, dim=-1)
    return part * cos.float() + torch.cat((-second, first), dim=-1) * sin.float()


def attention_mask(segments: Tensor, keep: Tensor) -> Tensor:
    """(B, 1, L, L) bool for packed questions.

    A position sees earlier positions that are shared or of its own question; visual tokens that are not kept are seen
    by nobody (but themselves, since an empty row has no softmax), which equals removing them with positions preserved.

    Parameters
    ----------
    segments: (B, Q) int, the question of each packed token; padding has a number of its own.
    keep: (B, 196) bool.
    """
    batch, device = segments.shape[0], segments.device
    shared = torch.full((batch, SHARED), -1, dtype=segments.dtype, device=device)
    of = torch.cat((shared, segments), dim=1)
    length = of.shape[1]
    visible = torch.ones(batch, length, dtype=torch.bool, device=device)
    start = len(vocabulary.PREFIX)
    visible[:, start : start + TOKENS] = keep
    place = torch.arange(length, device=device)
    earlier, itself = place[:, None] >= place[None], place[:, None] == place[None]
    same = (of[:, None, :] == -1) | (of[:, :, None] == of[:, None, :])
    return ((earlier & same & visible[:, None, :]) | itself)[:, None]
