"""What a budget is counted over: the whole image, or its tiles one by one, chosen from apart and put together again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from sightline.backbones.signals import of_positions, of_tokens
from sightline.core.selection import Budget, LayerState, Layout, Selection, TokenView
from sightline.core.selection_rules import in_native_order


@dataclass(frozen=True)
class CountedPart:
    """Consecutive visual tokens of an image with a budget of their own."""

    first: int
    layout: Layout
    tile: int | None = None
    """Which block of the image's layout it is; None: the whole image."""

    @property
    def n(self) -> int:
        return sum(rows * columns for rows, columns in self.layout)

    def of(self, view: TokenView) -> TokenView:
        """What a selector sees of this part alone; drawn selections differ from tile to tile."""
        if self.tile is None:
            return view
        here = slice(self.first, self.first + self.n)
        return replace(
            view,
            tokens=view.tokens[here],
            cells=view.cells[here],
            layout=self.layout,
            signals={name: of_tokens(name, signal, self.first, self.n) for name, signal in view.signals.items()},
            key=f"{view.key}:{self.tile}",
        )

    def among(self, state: LayerState, uncut: Tensor) -> LayerState:
        """What a method between layers sees of this part alone: the prompt without the tokens of other tiles.

        ``uncut`` (N,) are the positions of all visual tokens before any cut. Attention to other tiles is left out, not
        shared out among what stays.
        """
        own = (state.source >= self.first) & (state.source < self.first + self.n)
        now = _without(state.hidden.shape[0], state.image[~own])
        length = state.hidden.shape[0] + len(uncut) - len(state.image)
        before = _without(length, torch.cat([uncut[: self.first], uncut[self.first + self.n :]]))
        return replace(
            state,
            hidden=state.hidden.index_select(0, now.to(state.hidden.device)),
            image=torch.searchsorted(now, state.image[own]),
            source=state.source[own] - self.first,
            layout=self.layout,
            signals={name: of_positions(name, signal, now, before) for name, signal in state.signals.items()},
            key=f"{state.key}:{self.tile}",
        )


def _without(length: int, positions: Tensor) -> Tensor:
    """0..length-1 but for these positions, ascending."""
    stays = torch.ones(length, dtype=torch.bool)
    stays[positions] = False
    return stays.nonzero().squeeze(1)


def parts_of(layout: Layout, budget: Budget) -> list[CountedPart]:
    """In native order; an image that is one grid is the same under either kind of budget, draws included."""
    return [CountedPart(0, layout)] if budget.per == "image" else tiles_of(layout)


def tiles_of(layout: Layout) -> list[CountedPart]:
    """One part per block of the layout; a single grid is the whole image."""
    if len(layout) == 1:
        return [CountedPart(0, layout)]
    parts: list[CountedPart] = []
    for tile, block in enumerate(layout):
        first = parts[-1].first + parts[-1].n if parts else 0
        parts.append(CountedPart(first, (block,), tile))
    return parts


def together(selections: Sequence[Selection], sizes: Sequence[int]) -> Selection:
    """One selection of an image from those of its parts, which have so many tokens each, in native order.

    Anchors move by the tokens in front of their part. A mix becomes block-diagonal; a class token's column, behind the
    tokens of every part, is the one behind those of the image.
    """
    if len(selections) == 1:
        return selections[0]
    n, firsts = sum(sizes), [sum(sizes[:i]) for i in range(len(sizes))]
    placed = zip(selections, firsts, sizes, strict=True)
    anchors = torch.cat([_moved(each.anchors, first, size, n) for each, first, size in placed])
    merging = next((each for each in selections if each.mix is not None), selections[0])
    mix = None if merging.mix is None else _whole_mix(selections, firsts, sizes)
    return in_native_order(Selection(anchors, mix, merging.merge_at, merging.native_order))


def _moved(anchors: Tensor, first: int, size: int, n: int) -> Tensor:
    """Anchors in a part as those of the image. One beyond its part, which a GPU has not checked yet, is beyond all n:
    it must not pass for a token of the next tile."""
    return torch.where(anchors < 0, anchors, torch.where(anchors < size, anchors + first, n))


def _whole_mix(selections: Sequence[Selection], firsts: Sequence[int], sizes: Sequence[int]) -> Tensor:
    """(K, N), or (K, N + 1) if some part mixes in a class token."""
    mixes = [_mix(each, size) for each, size in zip(selections, sizes, strict=True)]
    n, outputs = sum(sizes), sum(map(len, mixes))
    has_class_token = any(mix.shape[1] > size for mix, size in zip(mixes, sizes, strict=True))
    whole = torch.zeros(outputs, n + has_class_token, dtype=mixes[0].dtype, device=mixes[0].device)
    row = 0
    for mix, first, size in zip(mixes, firsts, sizes, strict=True):
        rows = whole[row : row + len(mix)]
        rows[:, first : first + size] = mix[:, :size]
        if mix.shape[1] > size:
            rows[:, n] = mix[:, size]
        row += len(mix)
    return whole


def _mix(selection: Selection, size: int) -> Tensor:
    """The mix, or that of a deletion: each output is its anchor."""
    if selection.mix is not None:
        return selection.mix
    return one_hot(selection.anchors.clamp(0, size - 1), size).float()
