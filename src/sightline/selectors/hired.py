"""HiRED: the base picture's shallow attention says how much each tile may keep, deep attention says what."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.core.selection import Layout, Parity, Ranges, Selection, Selector, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.fastervlm import CLASS_ATTENTION, head_mean
from sightline.selectors.scores import order, top, without
from sightline.selectors.spreading import best_within, tiles_of

SHALLOW = "vision.cls_attention@0"
Regions = Literal["strips", "tiles"]


def tile_budgets(shallow: Tensor, side: tuple[int, int], grid: tuple[int, int], k: int, share: float) -> Tensor:
    """(T,) tokens of each of rows x columns tiles, rounded down: k times its part of what the base picture looks at.

    shallow (n,) attention of the base picture, ``side`` its rows and columns. Of its floor(n * share) most attended
    patches, a tile's part are those in its part of the picture.
    """
    n = len(shallow)
    rows, columns = torch.meshgrid(torch.arange(side[0]), torch.arange(side[1]), indexing="ij")
    region = (rows * grid[0] // side[0] * grid[1] + columns * grid[1] // side[1]).flatten()
    looked_at = torch.zeros(n).index_fill_(0, top(shallow, int(n * share)), 1.0)
    parts = torch.zeros(grid[0] * grid[1]).index_add_(0, region, looked_at)
    return (parts / parts.sum().clamp_min(1.0) * k).int()


@SELECTORS.register("hired")
@dataclass(frozen=True)
class HiRED(Selector):
    """Splits the budget over base picture and tiles by where the tower looks early, and keeps what it looks at late.

    Reference: Arif et al., "HiRED: Attention-Guided Token Dropping for Efficient Inference of High-Resolution
    Vision-Language Models" (AAAI 2025).
    Needs: class-token attention of the first and of the penultimate vision layer, summed over heads.
    Parity: official-algorithm. Base picture and tiles keep what the public code for LLaVA-NeXT keeps. Its tile budgets
    are rounded down and what is left over is lost; here it goes to the most attended of the other tile tokens, so that
    K are kept. It chooses among padding too, which is cropped afterwards; here only tokens of the image count.
    Acts: deletes before the language model. The share ``alpha`` of K goes to the base picture; the rest to the tiles
    by their part in the (1 - ``alpha``) n patches of the base picture that the first layer attends to most; within
    each the penultimate layer decides. Without tiles that layer decides alone.
    Degenerate inputs: equal scores go to the lower index; NaN attention counts as 0; what a full tile cannot take goes
    to the other tiles, and then to the base picture.

    Parameters
    ----------
    alpha: the base picture's share of K.
    regions: which part of the base picture stands for a tile; ``strips`` as published, as many consecutive patches row
        by row, which is the tile's own place only where tiles are stacked; ``tiles`` is that place, as the paper draws.
    """

    alpha: float = 0.5
    regions: Regions = "strips"

    name: ClassVar[str] = "hired"
    parity: ClassVar[Parity] = "official-algorithm"
    needs: ClassVar[frozenset[str]] = frozenset({SHALLOW, CLASS_ATTENTION})
    unpublished: ClassVar[str] = "no form of it is published for images without a class token"
    ranges: ClassVar[Ranges] = {"alpha": (0.0, 1.0)}

    def select(self, view: TokenView, k: int) -> Selection:
        shallow, deep = (head_mean(view.signals[name].nan_to_num()).cpu() for name in (SHALLOW, CLASS_ATTENTION))
        tile, grid = tiles_of(view.layout, view.cells.cpu())
        if grid is None:
            return Selection(top(deep, k))
        base = (tile < 0).nonzero().flatten()
        own = min(int(k * self.alpha), len(base))
        wanted = [own, *self._budgets(shallow[base], view.layout, base, grid, k - own).tolist()]
        kept = torch.cat([best_within(deep, tile == number - 1, count) for number, count in enumerate(wanted)])
        rest = without(order((tile < 0).float(), -deep), kept)[: k - len(kept)]
        return Selection(torch.cat([kept, rest]).sort().values)

    def _budgets(self, shallow: Tensor, layout: Layout, base: Tensor, grid: tuple[int, int], k: int) -> Tensor:
        if self.regions == "strips":
            return tile_budgets(shallow, (len(shallow), 1), (grid[0] * grid[1], 1), k, 1.0 - self.alpha)
        side = next(block for block in layout if block[0] * block[1] == len(base))
        return tile_budgets(shallow, side, grid, k, 1.0 - self.alpha)
