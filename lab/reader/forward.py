"""A stock model's forward for a batch of 448 px scenes, written for training speed.

Same weights, same function, other arithmetic: all images of a batch share one attention call, the patch convolution
is the linear map it equals, and several questions about an image are packed behind one copy of its visual tokens.
A test holds the two forwards together.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lab.reader import vocabulary
from lab.reader.side_by_side_attention import as_bias, question_mask, rotate


class SeenTokens(NamedTuple):
    """What the vision tower makes of a batch of images."""

    states: Tensor
    """(B, S, Dv) states that the visual tokens are made from, ordered by visual token."""
    tokens: Tensor
    """(B, N, D) visual tokens in reading order."""
    deep: tuple[Tensor, ...] = ()
    """DeepStack levels, each of the shape of ``tokens``."""
    page: Tensor | None = None
    """(B, Dv) pooled class token, of a tower that has one."""


class BatchedForward(ABC):
    """Vision and language forwards over the modules of one stock model; a form adds its tower and its positions."""

    def __init__(self, model: Any, prefixes: tuple[tuple[int, ...], ...], positions: Tensor) -> None:
        """``prefixes``: ids before the visual tokens of yes/no and of open questions, equally many (P).

        ``positions``: (A, P + N + 1) int64, rotary positions of what all questions share, on each of A axes: prefix,
        visual tokens and the closing vision token. Questions go on from there.
        """
        device = positions.device
        self.model, self.language = model, model.model.language_model
        self.prefixes = torch.tensor(prefixes, device=device)
        self.closing = torch.tensor([vocabulary.VISION_END], device=device)
        self.positions = positions

    @property
    def device(self) -> torch.device:
        return self.positions.device

    @property
    def embedding(self) -> Tensor:
        """(V, D) input embeddings, which are the output projection too."""
        return self.language.embed_tokens.weight  # type: ignore[no-any-return]

    @abstractmethod
    def see(self, images: Tensor) -> SeenTokens:
        """``images``: (B, 3, 448, 448) in 0..255."""

    def read(
        self,
        seen: SeenTokens,
        ids: Tensor,
        positions: Tensor,
        segments: Tensor,
        keep: Tensor,
        in_words: Tensor | None = None,
    ) -> Tensor:
        """Language states of the question part, (B, Q, D), before the output projection.

        Visual tokens that are not kept are put behind the others, where no causal attention reaches them, and are
        hidden from the questions: this equals removing them with positions preserved.

        Parameters
        ----------
        ids: (B, Q) packed questions; positions: (B, Q), counted from the start of each; segments: (B, Q), the question
            of each token, padding with a number of its own.
        keep: (B, N) bool.
        in_words: (B,) bool, images whose questions are open ones; None: none.
        """
        language, (batch, count) = self.language, keep.shape
        start = self.prefixes.shape[1]
        order = (~keep).to(torch.int8).argsort(dim=1, stable=True)
        prefix = self.prefixes[:1].expand(batch, -1) if in_words is None else self.prefixes[in_words.long()]
        before = language.embed_tokens(prefix)
        after = language.embed_tokens(torch.cat((self.closing.expand(batch, 1), ids), dim=1))
        hidden = torch.cat((before, _reordered(seen.tokens, order).to(before.dtype), after), dim=1)
        deep = [_reordered(level, order) for level in seen.deep]

        head, closing = self.positions[:, :start], self.positions[:, -1:]
        where = torch.cat(
            (
                head[:, None].expand(-1, batch, -1),
                self.positions[:, start:-1][:, order],
                closing[:, None].expand(-1, batch, -1),
                closing[:, :, None] + 1 + positions,
            ),
            dim=2,
        )
        cos, sin = language.rotary_emb(hidden, where if len(where) > 1 else where[0])
        cos, sin = cos[:, None], sin[:, None]
        place = torch.arange(start + count, device=keep.device)
        visible = place < start + keep.sum(1, keepdim=True)
        bias = as_bias(question_mask(segments, visible), hidden)
        for index, layer in enumerate(language.layers):
            hidden = hidden + _attend(layer.self_attn, layer.input_layernorm(hidden), cos, sin, bias)
            hidden = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
            if index < len(deep):
                behind = hidden.shape[1] - start - count
                hidden = hidden + F.pad(deep[index].to(hidden.dtype), (0, 0, start, behind))
        return language.norm(hidden[:, start + count + 1 :])  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor) -> Tensor:
        return F.linear(hidden, self.embedding)


def _reordered(rows: Tensor, order: Tensor) -> Tensor:
    """(B, N, D) rows in ``order`` (B, N)."""
    return rows.gather(1, order[..., None].expand(-1, -1, rows.shape[2]))


def _attend(attention: Any, hidden: Tensor, cos: Tensor, sin: Tensor, bias: Tensor) -> Tensor:
    """Plain causal attention up to the closing vision token; from there on (B, 1, 1 + Q, L) ``bias`` decides."""
    shape = (*hidden.shape[:2], -1, attention.head_dim)
    query, key = attention.q_proj(hidden).view(shape), attention.k_proj(hidden).view(shape)
    if hasattr(attention, "q_norm"):
        query, key = attention.q_norm(query), attention.k_norm(key)
    value = attention.v_proj(hidden).view(shape).transpose(1, 2)
    query, key = (rotate(part.transpose(1, 2), cos, sin).to(value.dtype) for part in (query, key))
    groups = attention.num_key_value_groups
    key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    shared = key.shape[2] - bias.shape[2]
    first = F.scaled_dot_product_attention(
        query[:, :, :shared], key[:, :, :shared], value[:, :, :shared], is_causal=True, scale=attention.scaling
    )
    last = F.scaled_dot_product_attention(query[:, :, shared:], key, value, attn_mask=bias, scale=attention.scaling)
    mixed = torch.cat((first, last), dim=2)
    return attention.o_proj(mixed.transpose(1, 2).reshape(*hidden.shape[:2], -1))  # type: ignore[no-any-return]
