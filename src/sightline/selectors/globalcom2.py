"""GlobalCom2: the base picture decides how much each tile keeps and helps to decide what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import grid_sample, normalize

from sightline.core.selection import Parity, Ranges, Selection, Selector, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.scores import centres, order, top, without
from sightline.selectors.spreading import best_within, tiles_of

ATTENTION = "vision.cls_attention@-1"
FAINT = 1e-30
"""Attention below this counts as this: its logarithm must be finite."""


def tile_shares(base: Tensor, grid: tuple[int, int], share: float, temperature: float) -> Tensor:
    """(T,) part of its tokens that each of rows x columns tiles keeps, at most 1.

    base (h, w) scores of the base picture: with S_t their sum over the tile's part of it and p = softmax(S /
    ``temperature``), a tile keeps share * (1 + p_t - mean p).
    """
    high, wide = base.shape
    row = (torch.arange(high) // max(high // grid[0], 1)).clamp_max(grid[0] - 1)
    column = (torch.arange(wide) // max(wide // grid[1], 1)).clamp_max(grid[1] - 1)
    region = (row[:, None] * grid[1] + column).flatten()
    sums = torch.zeros(grid[0] * grid[1], dtype=torch.float64).index_add_(0, region, base.double().flatten())
    weight = (sums / temperature).softmax(dim=0)
    return (share * (1.0 + weight - weight.mean())).clamp_max(1.0)


def seen_from_above(base: Tensor, cells: Tensor) -> Tensor:
    """(M,) the base picture's scores (h, w), interpolated at the centres of cells (M, 4)."""
    places = torch.stack([2.0 * centre - 1.0 for centre in centres(cells)], dim=-1).to(base.dtype)
    seen = grid_sample(base[None, None], places[None, None], padding_mode="border", align_corners=False)
    return seen.flatten()


def combined(score: Tensor, above: Tensor) -> Tensor:
    """(M,) a tile's own scores and those of the base picture at the same places, each scaled to length 1, added."""
    return normalize(score, dim=0) + normalize(above, dim=0)


@SELECTORS.register("globalcom2")
@dataclass(frozen=True)
class GlobalCom2(Selector):
    """Tiles that matter to the whole picture keep more, and keep what tile and picture look at.

    Reference: Liu et al., "Global Compression Commander: Plug-and-Play Inference Acceleration for High-Resolution Large
    Vision-Language Models" (AAAI 2026).
    Needs: class-token attention of the last vision layer.
    Parity: official-algorithm. Equal to the public code for LLaVA-NeXT, given its scores: head means of attention
    before softmax. Here they are head means of log attention, which differ from those by a number for each tile; that
    changes no order within picture or tile but how its own scores weigh against the picture's (see docs/methods.md).
    Counts are rounded down there; here what is left over goes to the highest scores among the other tile tokens.
    Acts: deletes before the language model. The base picture keeps the part K / N of its tokens, a tile the part that
    ``tile_shares`` says; within a tile by ``combined``. Without tiles it is the attention alone.
    Degenerate inputs: equal scores go to the lower index; no or NaN attention counts as very little.

    Parameters
    ----------
    temperature: by what the sums over a tile's part of the picture are divided before softmax.
    """

    temperature: float = 10.0

    name: ClassVar[str] = "globalcom2"
    parity: ClassVar[Parity] = "official-algorithm"
    needs: ClassVar[frozenset[str]] = frozenset({ATTENTION})
    ranges: ClassVar[Ranges] = {"temperature": (1e-6, 1e6)}
    unpublished: ClassVar[str] = "its paper has two ways of doing without one, and no code of either is published"

    def select(self, view: TokenView, k: int) -> Selection:
        attention = view.signals[ATTENTION].float().nan_to_num().clamp_min(FAINT)
        return Selection(self.kept(attention.log().mean(dim=0).cpu(), view, k))

    def kept(self, score: Tensor, view: TokenView, k: int) -> Tensor:
        """(K,) ascending, from one score (N,) per token, on the CPU."""
        tile, grid = tiles_of(view.layout, view.cells.cpu())
        if grid is None:
            return top(score, k)
        parts, value = self.parts(score, view, tile, grid, k)
        taken = torch.cat(parts)[:k]
        rest = without(order((tile < 0).float(), -value), taken)[: k - len(taken)]
        return torch.cat([taken, rest]).sort().values

    def parts(
        self, score: Tensor, view: TokenView, tile: Tensor, grid: tuple[int, int], k: int
    ) -> tuple[list[Tensor], Tensor]:
        """What base picture and tiles keep, each by its share rounded down, and (N,) what they go by."""
        is_base, cells = tile < 0, view.cells.cpu()
        n = int(is_base.sum())
        base = score[is_base].view(next(block for block in view.layout if block[0] * block[1] == n))
        above = torch.zeros_like(score).masked_scatter_(~is_base, seen_from_above(base, cells[~is_base]))
        found, value = [best_within(score, is_base, int(n * (k / len(tile))))], score.clone()
        for number, share in enumerate(tile_shares(base, grid, k / len(tile), self.temperature).tolist()):
            own = tile == number
            value[own] = combined(score[own], above[own])
            found.append(best_within(value, own, int(int(own.sum()) * share)))
        return found, value
