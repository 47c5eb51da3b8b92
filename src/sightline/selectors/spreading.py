"""Spreading tokens over the image plane: around sources, between two boxes, far from everything, evenly.

The greedy one picks token after token from a few thousand numbers, where numpy's calls cost a fraction of torch's.
"""

from __future__ import annotations

import itertools
import math
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sightline.core.selection import Layout, TokenView
from sightline.selectors.scores import centres, order, overlap_area, rank, uniqueness, without

WHOLE = 0.95
"""Part of the plane from which on a block is the whole picture: what was cropped or padded may be missing."""
CORRIDOR_MARGIN = 0.04
"""By how much the hull of two boxes is grown on each side to make the corridor between them."""


def ring(scores: Tensor, cells: Tensor, chosen: Tensor, count: int) -> Tensor:
    """Up to ``count`` free tokens by (squared distance to the nearest source, -score, index).

    Sources are the tokens with a positive score if some but not all have one, else as many of the best as are
    chosen. No token qualifies when no score is positive.
    """
    n = scores.shape[0]
    if count <= 0 or float(scores.max()) <= 0.0:
        return chosen.new_empty(0)
    source = scores > 0.0
    if bool(source.all()):
        source = torch.zeros_like(source)
        source[rank(scores)[: max(1, chosen.shape[0] or count)]] = True
    distance = scores.new_zeros(n)
    distance[~source] = nearest(cells[~source], cells[source])
    candidates = without(torch.arange(n), chosen)
    return candidates[order(distance[candidates], -scores[candidates])[:count]]


def nearest(cells: Tensor, sources: Tensor) -> Tensor:
    """(N,) squared distance of each cell's centre to the nearest of the source centres (A, 4), A >= 1.

    Exact but not N x A: cells lie in rows and columns, so the smallest squared x distance is taken once per row of
    sources and column of cells, which leaves N x rows candidates. Rounding is monotone, hence the minimum is the
    same number.
    """
    (x, y), (source_x, source_y) = ([part.numpy() for part in centres(boxes)] for boxes in (cells, sources))
    by_row = np.argsort(source_y, kind="stable")
    rows, starts = np.unique(source_y[by_row], return_index=True)
    columns, column = np.unique(x, return_inverse=True)
    across = columns[:, None] - source_x[by_row]
    in_row = np.minimum.reduceat(across * across, starts, axis=1)
    down = y[:, None] - rows
    return torch.from_numpy((in_row[column] + down * down).min(axis=1))


def corridor(scores: Tensor, cells: Tensor, boxes: Tensor, chosen: Tensor, count: int) -> Tensor:
    """Up to ``count`` free tokens of the corridor between the first two boxes; none if there are fewer boxes.

    The corridor is the hull of the two boxes, grown and clipped to the image. Key, ascending: not overlapping it,
    squared distance of the centre to it, squared distance to its centre, -score, index.
    """
    if count <= 0 or boxes.shape[0] < 2:
        return chosen.new_empty(0)
    hull = torch.cat([boxes[:2, :2].amin(dim=0) - CORRIDOR_MARGIN, boxes[:2, 2:].amax(dim=0) + CORRIDOR_MARGIN])
    hull = hull.clamp(0.0, 1.0)
    candidates = without(torch.arange(scores.shape[0]), chosen)
    near = cells[candidates]
    x, y = centres(near)
    outside_x = torch.maximum(hull[0] - x, x - hull[2]).clamp_min(0.0)
    outside_y = torch.maximum(hull[1] - y, y - hull[3]).clamp_min(0.0)
    across, down = x - centres(hull)[0], y - centres(hull)[1]
    ranked = order(
        (overlap_area(near, hull[None])[0] <= 0.0).double(),
        outside_x * outside_x + outside_y * outside_y,
        across * across + down * down,
        -scores[candidates],
    )
    return candidates[ranked[:count]]


def farthest(cells: Tensor, chosen: Tensor, count: int) -> Tensor:
    """(count,) free tokens, each the farthest from all chosen before it (centre distance, lower index on ties)."""
    x, y = (part.numpy() for part in centres(cells))
    gap = nearest(cells, cells[chosen]).numpy()
    gap[chosen] = -1.0
    picks = np.empty(count, dtype=np.int64)
    for step in range(count):
        pick = picks[step] = gap.argmax()
        approach(gap, x, y, pick)
        gap[pick] = -1.0
    return torch.from_numpy(picks)


def approach(gap: NDArray[np.float64], x: NDArray[np.float64], y: NDArray[np.float64], pick: np.int64) -> None:
    """Lowers each squared distance in ``gap`` to that from the token ``pick``, in place, where it is nearer."""
    across, down = x - x[pick], y - y[pick]
    across *= across
    down *= down
    across += down
    np.minimum(gap, across, out=gap)


# Evenly over the image: a grid of as many places as tokens are wanted.

GridCells = Literal["covering", "truncated"]


def grid(cells: Tensor, k: int, tiling: GridCells = "covering") -> Tensor:
    """(k,) distinct tokens spread over the image, from (N, 4) cells, k <= N."""
    if k >= cells.shape[0]:
        return torch.arange(cells.shape[0])
    return _covering(cells, k) if tiling == "covering" else _truncated(cells, k)


def _truncated(cells: Tensor, k: int) -> Tensor:
    """The first k of s x s squares, row by row; missing tokens from the top-left."""
    side = math.ceil(math.sqrt(k))
    x, y = centres(cells)
    column, row = (x * side).long().clamp(0, side - 1), (y * side).long().clamp(0, side - 1)
    across, down = x - (column.double() + 0.5) / side, y - (row.double() + 0.5) / side
    picks = _first_of_each(row * side + column, across * across + down * down)
    square = (row * side + column)[picks]
    picks = picks[square < k]
    return torch.cat([picks, without(order(y, x), picks)[: k - picks.shape[0]]])


def _first_of_each(group: Tensor, distance: Tensor) -> Tensor:
    """For each group that has members, the member with the smallest distance (lower index on ties), by group."""
    ranked = order(group, distance)
    group = group[ranked]
    first = torch.ones_like(group, dtype=torch.bool)
    first[1:] = group[1:] != group[:-1]
    return ranked[first]


def _covering(cells: Tensor, k: int) -> Tensor:
    """k equal-height rows of rectangles that tile everything the tokens see."""
    side = math.ceil(math.sqrt(k))
    starts = torch.div(torch.arange(side + 1) * k, side, rounding_mode="floor")
    corner = cells[:, :2].amin(dim=0)
    extent = cells[:, 2:].amax(dim=0) - corner
    x, y = (torch.stack(centres(cells), dim=-1) - corner).div(torch.where(extent > 0.0, extent, 1.0)).unbind(dim=-1)

    row = (y * side).long().clamp(0, side - 1)
    columns = starts.diff()
    column = torch.minimum((x * columns[row]).long(), columns[row] - 1)
    rectangle_row = torch.repeat_interleave(torch.arange(side), columns)
    centre_x = ((torch.arange(k) - starts[rectangle_row]).double() + 0.5) / columns[rectangle_row]
    centre_y = (rectangle_row.double() + 0.5) / side

    rectangle = starts[row] + column
    across, down = x - centre_x[rectangle], y - centre_y[rectangle]
    picks = _first_of_each(rectangle, across * across + down * down)
    taken = torch.zeros_like(x)
    taken[picks] = torch.inf
    empty = torch.ones(k, dtype=torch.bool)
    empty[rectangle[picks]] = False
    late = []
    for vacant in torch.nonzero(empty).squeeze(-1).tolist():
        across, down = x - centre_x[vacant], y - centre_y[vacant]
        late.append(int((across * across + down * down + taken).argmin()))
        taken[late[-1]] = torch.inf
    return torch.cat([picks, torch.tensor(late, dtype=torch.long)])


# How unlike its surroundings a token is, for the selectors that ask for it.

Neighbours = Literal["blocks", "one_raster", "evidence", "none"]
"""``blocks``: unlike the 4-neighbours inside its tile or the thumbnail. Published masks were made with the other three.
``one_raster``: as if all tiles formed one wide row-major grid, which mixes distant tokens. ``evidence``: distance to
the nearest cell that overlaps a box, at most 1. ``none``: 0 everywhere."""


def local_uniqueness(view: TokenView, neighbours: Neighbours) -> Tensor:
    """(N,) float64 on the CPU, from a view on the CPU."""
    if neighbours == "evidence":
        return evidence_distance(view.cells, view.boxes)
    if neighbours == "none":
        return view.cells.new_zeros(view.cells.shape[0])
    layout = view.layout
    if neighbours == "one_raster":
        layout = ((layout[0][0], view.cells.shape[0] // layout[0][0]),)
    return uniqueness(view.tokens, layout).cpu().double()


def evidence_distance(cells: Tensor, boxes: Tensor) -> Tensor:
    """(N,) distance of each centre to the nearest centre of a cell that overlaps a box, at most 1; 0 without any."""
    source = (overlap_area(cells, boxes) > 0.0).any(dim=0)
    if not bool(source.any()):
        return cells.new_zeros(cells.shape[0])
    squared = nearest(cells, cells[source])
    # Power, not square root: the two differ in the last bit for one value in a thousand, and distances on a regular
    # grid tie so often that published masks show which of them was used.
    return torch.tensor([min(1.0, value**0.5) for value in squared.tolist()], dtype=cells.dtype)


# Tiles of an image of which there is also a smaller picture of the whole.


def tiles_of(layout: Layout, cells: Tensor) -> tuple[Tensor, tuple[int, int] | None]:
    """(N,) int64 the tile of each token, row by row from 0, -1 in the base picture; and (rows, columns) of tiles.

    The base picture is the smallest block whose cells, on the CPU, span the image; None if there is no other block. A
    single other block is stitched of tiles as large as the base, with what was cropped missing in equal parts at both
    ends.
    """
    sizes = [rows * columns for rows, columns in layout]
    if len(layout) == 1:
        return torch.full((sizes[0],), -1), None
    starts = list(itertools.accumulate(sizes, initial=0))
    blocks = [cells[start:end] for start, end in itertools.pairwise(starts)]
    spans = [float((each[:, 2:].amax(dim=0) - each[:, :2].amin(dim=0)).prod()) for each in blocks]
    base = min((sizes[block], block) for block, span in enumerate(spans) if span >= WHOLE * max(spans))[1]
    others = [block for block in range(len(layout)) if block != base]
    number = torch.full((sum(sizes),), -1)
    if len(others) == 1:
        (rows, columns), (high, wide) = layout[others[0]], layout[base]
        down, across = -(-rows // high), -(-columns // wide)
        row = (torch.arange(rows) + (down * high - rows) // 2) // high
        column = (torch.arange(columns) + (across * wide - columns) // 2) // wide
        parts = [(row[:, None] * across + column).flatten()]
        grid = (down, across)
    else:
        parts = [torch.full((sizes[block],), tile) for tile, block in enumerate(others)]
        across = len({float(blocks[block][:, 0].amin()) for block in others})
        grid = (-(-len(others) // across), across)
    for block, part in zip(others, parts, strict=True):
        number[starts[block] : starts[block + 1]] = part
    return number, grid


def best_within(score: Tensor, within: Tensor, count: int) -> Tensor:
    """The ``count`` highest scores of those ``within``, or all of them."""
    return rank(torch.where(within, score, -torch.inf))[: min(count, int(within.sum()))]
