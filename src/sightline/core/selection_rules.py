"""What the framework does to a selection so that no method has to: native order, checks that are never silent, and
budgets of every tile's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from sightline.core.selection import Budget, LayerState, Layout, Selection, TokenView, of_positions, of_tokens
from sightline.device.work import Arriving, is_out_of_memory, on_device
from sightline.errors import SightlineError, named_line

INTEGERS = (torch.int64, torch.int32, torch.int16)


@contextmanager
def errors_named(selector: str) -> Iterator[None]:
    """Whatever a method raises, ``sys.exit`` included, is one line with its name.

    Memory that ran out is not its fault: whoever called may try again with less.
    """
    try:
        yield
    except SightlineError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        raise SightlineError(
            f"selector {selector} failed ({named_line(error)}); sightline --debug shows where"
        ) from error


def check_types(selection: object, selector: str) -> None:
    """A ``Selection`` of integer anchors, whatever the method's author took for one."""
    if not isinstance(selection, Selection):
        raise SightlineError(
            f"selector {selector} returned a {type(selection).__name__}; it must return Selection(anchors)"
        )
    anchors, mix = selection.anchors, selection.mix
    if not isinstance(anchors, Tensor) or anchors.dtype not in INTEGERS or anchors.ndim != 1:
        raise SightlineError(
            f"selector {selector} returned anchors that are {_described(anchors)}; a (K,) tensor of int64 is needed"
        )
    if mix is not None and not (isinstance(mix, Tensor) and mix.is_floating_point() and mix.ndim == 2):
        raise SightlineError(
            f"selector {selector} returned a mix that is {_described(mix)}; a (K, N) tensor of floats is needed"
        )


def _described(value: object) -> str:
    if not isinstance(value, Tensor):
        return f"a {type(value).__name__}"
    return f"{tuple(value.shape)} of {str(value.dtype).removeprefix('torch.')}"


def in_native_order(selection: Selection) -> Selection:
    """Outputs sorted by anchor, those without a cell first. What the framework does so that no method has to."""
    if not selection.native_order:
        return selection
    order = torch.argsort(selection.anchors, stable=True)
    mix = None if selection.mix is None else selection.mix[on_device(order, selection.mix.device)]
    return Selection(selection.anchors[order], mix, selection.merge_at)


def check_selection(selection: Selection, n: int, k: int, selector: str) -> None:
    """K outputs, distinct anchors within 0..N-1 (or -1), a mix of matching shape. A mismatch is never silent."""
    check_shapes(selection, n, k, selector)
    check_anchors(selection.anchors.cpu(), n, selector, merges=selection.mix is not None)


def check_shapes(selection: Selection, n: int, k: int, selector: str) -> None:
    """The part of the check that needs no value, so that it never waits for the device."""
    check_types(selection, selector)
    anchors, mix = selection.anchors, selection.mix
    if len(anchors) != k:
        raise SightlineError(f"selector {selector} returned {len(anchors)} tokens where the budget is {k}")
    if mix is not None and (mix.shape[0] != k or mix.shape[1] not in (n, n + 1)):
        raise SightlineError(f"selector {selector} returned a mix of shape {tuple(mix.shape)} for {k} x {n}")


def check_anchors(anchors: Tensor, n: int, selector: str, *, merges: bool) -> None:
    """The part of the check that looks at the (K,) anchors themselves, on the host."""
    placed = anchors[anchors >= 0]
    if len(placed) and int(placed.max()) >= n:
        raise SightlineError(f"selector {selector} chose token {int(placed.max())} of {n}")
    if len(torch.unique(placed)) != len(placed):
        raise SightlineError(f"selector {selector} chose a token twice")
    if not merges and len(placed) != len(anchors):
        raise SightlineError(f"selector {selector} returned a token without a source but no mix")


def lineage_mask(selection: Selection, n: int) -> Tensor:
    """(N,) bool: every visual token that contributes to some output."""
    if selection.mix is not None:
        return contributing(selection.mix, n).cpu()
    mask = torch.zeros(n, dtype=torch.bool)
    mask[selection.anchors.cpu()] = True
    return mask


def contributing(mix: Tensor, n: int) -> Tensor:
    """(N,) bool, where the (K, N) or (K, N + 1) mix is: the visual tokens that some output is mixed from."""
    return (mix[:, :n] != 0).any(dim=0)


def largest_shares(mix: Tensor, n: int) -> Tensor:
    """(N,) float32, where the (K, N) or (K, N + 1) mix is: the largest part that each visual token has in one output.

    It is positive exactly where ``contributing`` is true, however small the weight.
    """
    return output_parts(mix.float())[:, :n].amax(dim=0)


def output_parts(mix: Tensor) -> Tensor:
    """A float mix as parts of each output: |weight| / sum of the row's |weights|, so 1 / m in an even mix of m sources.

    What has a weight has a part, if only the smallest number of its type.
    """
    least = torch.finfo(mix.dtype).tiny
    weights = mix.abs()
    parts = weights / weights.sum(dim=1, keepdim=True).clamp_min(least)
    return torch.where(mix != 0, parts.clamp(least, 1.0), 0.0)


# What an arm kept, read back: on a GPU its values are seen, and checked, here for the first time.


def index_mask(indices: Tensor, n: int) -> np.ndarray:
    """(N,) bool of (K,) indices on the host; those below zero have no cell."""
    mask = np.zeros(n, dtype=bool)
    placed = indices.numpy()
    mask[placed[placed >= 0]] = True
    return mask


class KeptTokens:
    """Which tokens an arm kept and what flowed into them, for all probes: on the way to the host in two copies."""

    def __init__(self, counts: Sequence[int], selections: Sequence[Selection]) -> None:
        self._counts = counts
        self._sizes = [len(selection.anchors) for selection in selections]
        self._merges = [selection.mix is not None for selection in selections]
        self._anchors = Arriving(torch.cat([selection.anchors for selection in selections]))
        shares = [
            largest_shares(selection.mix, n)
            for n, selection in zip(counts, selections, strict=True)
            if selection.mix is not None
        ]
        self._shares = Arriving(torch.cat(shares)) if shares else None

    def anchors(self, selector: str) -> list[Tensor]:
        """Per probe (K,), checked: the values of a GPU's selections are seen here for the first time."""
        parts = list(torch.split(self._anchors.read(), self._sizes))
        for part, n, merges in zip(parts, self._counts, self._merges, strict=True):
            check_anchors(part, n, selector, merges=merges)
        return parts

    def read(self, selector: str) -> list[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
        """Per probe (N,) bool of anchors, (N,) bool of their lineage, and (N,) shares if tokens were mixed."""
        sizes = [n for n, merges in zip(self._counts, self._merges, strict=True) if merges]
        mixed = iter(torch.split(self._shares.read(), sizes) if self._shares is not None else ())
        masks: list[tuple[np.ndarray, np.ndarray, np.ndarray | None]] = []
        for anchors, n, merges in zip(self.anchors(selector), self._counts, self._merges, strict=True):
            mask = index_mask(anchors, n)
            shares = next(mixed).numpy() if merges else None
            masks.append((mask, mask if shares is None else shares > 0, shares))
        return masks


# What a budget is counted over: the whole image, or its tiles one by one, chosen from apart and put together again.


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
            signals={
                name: of_positions(name, signal, now, before)
                if name.startswith("lm.")
                else of_tokens(name, signal, self.first, self.n)
                for name, signal in state.signals.items()
            },
            key=f"{state.key}:{self.tile}",
            memory=state.memory.setdefault(str(self.tile), {}),
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


def join_selections(selections: Sequence[Selection], sizes: Sequence[int]) -> Selection:
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
