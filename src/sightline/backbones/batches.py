"""Prefixes side by side in a batch, and what a method that cuts between layers sees and says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from sightline.core.prefix import Prefix


@dataclass
class Batch:
    """Prefixes side by side: S = P + T slots, the shared part padded to P, then all answer branches padded to T.

    The image's span, ``counts[b]`` slots, starts at slot ``start`` in every sequence.
    """

    hidden: Tensor
    """(B, S, D)"""
    positions: Tensor
    """(A, B, S)"""
    segments: Tensor
    """(B, S): 0 shared, b for the b-th branch, -1 padding."""
    deepstack: tuple[Tensor, ...]
    """Per level (B, Kmax, D), zero behind a sequence's own count."""
    start: int
    counts: list[int]
    branches: int = 0
    """T"""
    ids: Tensor | None = None
    """(B, S) where every layer reads the ids of tokens once more, and what the first layer read: ``embeds``."""
    embeds: Tensor | None = None
    """(B, S, D)"""

    @property
    def shared(self) -> int:
        """P"""
        return self.hidden.shape[1] - self.branches

    def mask(self, first: int = 0) -> Tensor:
        """(B, 1, S - first, S) additive, rows ``first`` and later: causal, a branch is blind to the others.

        Padding attends to itself as well, so that no row is empty.
        """
        segments = self.segments
        length = segments.shape[1]
        row, column = segments[:, first:, None], segments[:, None, :]
        slots = torch.arange(length, device=segments.device)
        causal = slots[first:, None] >= slots
        allowed = causal & ((column == 0) | (column == row)) & (column >= 0)
        allowed |= slots[first:, None] == slots
        blocked = torch.finfo(self.hidden.dtype).min
        return torch.zeros_like(allowed, dtype=self.hidden.dtype).masked_fill_(~allowed, blocked)[:, None]


def padded_levels(prefixes: Sequence[Prefix]) -> tuple[Tensor, ...]:
    """Per DeepStack level of these prefixes (B, Kmax, D), zero behind a sequence's own."""
    widest = max(prefix.span for prefix in prefixes)
    levels = tuple(each.new_zeros(len(prefixes), widest, each.shape[1]) for each in prefixes[0].deepstack)
    for b, prefix in enumerate(prefixes):
        for level, features in zip(levels, prefix.deepstack, strict=True):
            level[b, : prefix.span] = features
    return levels


def cut_span(values: Tensor, left: Tensor, start: int, end: int, *, rows: int = 0, slots: int = 1) -> Tensor:
    """Values of a batch's slots with every span, ``start`` to ``end``, cut to its slots (B, m) that are left.

    ``rows`` and ``slots`` say along which axes.
    """
    shape = [1] * values.dim()
    shape[rows], shape[slots] = left.shape
    span = values.narrow(slots, start, end - start)
    whole = [*span.shape]
    whole[slots] = left.shape[1]
    inner = span.gather(slots, left.view(shape).expand(whole))
    behind = values.narrow(slots, end, values.shape[slots] - end)
    return torch.cat([values.narrow(slots, 0, start), inner, behind], dim=slots)


def token_places(prefix: Prefix) -> Tensor:
    """(K,) where in its span the visual tokens of a prefix stand."""
    return torch.arange(prefix.k) if prefix.places is None else prefix.places


def parts_of_layer(layer: Any, run: Callable[[], object]) -> Tensor:
    """(2, 2, B, S, D): what the attention and the feed-forward part of a layer read and made while it was ``run``."""
    noted: list[Tensor] = []

    def note(part: Any, given: Any, named: Any, made: Any) -> None:
        read = given[0] if given else named["hidden_states"]
        noted.append(torch.stack([read, (made[0] if isinstance(made, tuple) else made).view_as(read)]))

    hooks = [part.register_forward_hook(note, with_kwargs=True) for part in (layer.self_attn, layer.mlp)]
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return torch.stack(noted)


class SeenLayer(Protocol):
    """What can be seen of the layer that ran last, of the first L slots of one sequence of a batch."""

    def input(self, b: int, length: int) -> Tensor:
        """(L, D) what the layer read."""

    def rotary(self, b: int, length: int) -> Tensor:
        """(2, L, d) cosine and sine of its positions."""

    def attends(
        self, b: int, length: int, *, bare: bool = False, following: bool = False
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries (H, L, d), keys and values (Hkv, L, d); if ``bare``, rotated by nothing; if ``following``, those of
        the next layer on what this one made."""

    def parts(self, b: int, length: int) -> Tensor:
        """(2, 2, L, D) of its attention and of its feed-forward part, what each read and what it made."""

    def attention(self, b: int, length: int, first: int = 0, *, following: bool = False) -> Tensor:
        """(H, L - first, L) weights of slots from ``first`` on; if ``following``, of the next layer on what this one
        made."""

    def follow(self, b: int, length: int, token: Tensor) -> tuple[Tensor, Tensor]:
        """What the layer makes of a (D,) token behind the L slots: (D,), and (H, L + 1) the scaled products of its
        query with their keys, its own last."""

    def normed(self, b: int, length: int) -> Tensor:
        """(L, D) what the layer made, behind the decoder's final norm."""


@dataclass(frozen=True)
class Choice:
    """What goes on past a layer, for every row of a batch."""

    tokens: Tensor
    """(B, k, D) of the chosen tokens, or mixed."""
    left: Tensor
    """(B, m) slots of the span that stay: those of the chosen tokens, and every separator."""
    places: Tensor
    """(B, k) where among them the chosen tokens stand."""

    def rows(self, rows: Tensor) -> Choice:
        """The same for other rows, each of which has the prompt of one of these."""
        return Choice(self.tokens[rows], self.left[rows], self.places[rows])


class Cutter(Protocol):
    """Prunes between layers; see ``sightline.backbones.cuts``."""

    @property
    def follows(self) -> bool:
        """Whether it takes tokens of its own through the layers, behind the prompts."""

    def wants(self, layer: int) -> bool: ...

    def choose(self, batch: Batch, layer: int, seen: SeenLayer) -> Choice | None: ...

    def cut(self, batch: Batch, layer: int, seen: SeenLayer) -> Batch: ...
