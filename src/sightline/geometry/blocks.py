"""The grids that tokens are laid out in, read from their cells: tiles, a thumbnail, a base image, a stitched grid."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sightline.geometry.cells import Cells

AGREE = 0.25
"""Edges that differ by no more than this share of a cell are the same edge."""

Seen = NDArray[np.bool_]
Blocks = tuple[tuple[int, int], ...]
"""(rows, columns) of each, in order; together they have as many places as there are tokens."""


def token_blocks(cells: Cells, tiles: NDArray[np.int64] | None = None) -> Blocks:
    """Row-major blocks that tokens with these (N, 4) cells are made of, in order; ((1, N),) if they are not.

    A row goes on to the right between the same upper and lower edges; a block goes on downwards with rows that have the
    left and right edges of its first. Tokens that see padding alone, with empty cells, fit wherever a row or block goes
    on, and before its first cell.

    Cells do not tell two tiles, one below the other, from one tall grid. ``tiles`` (N,), the tile of each token, does:
    a block ends where one tile's rows give way to another's.
    """
    count = len(cells)
    seen: Seen = np.all(cells[:, 2:] > cells[:, :2], axis=1)
    tiles = np.zeros(count, dtype=np.int64) if tiles is None else tiles
    blocks: list[tuple[int, int]] = []
    first = 0
    while seen[first:].any():
        rows, columns = _block(cells[first:], seen[first:], tiles[first:])
        blocks.append((rows, columns))
        first += rows * columns
    single = sum(block == (1, 1) for block in blocks)
    # One token of its own may be a thumbnail; several are no grids, they just stand anywhere.
    return tuple(blocks) if first == count and single <= 1 else ((1, count),)


def split_tiles(blocks: Blocks, tiles: NDArray[np.int64]) -> int:
    """How many tiles have their tokens in more than one block; ``tiles`` (N,) is the tile of each token."""
    block = np.repeat(np.arange(len(blocks)), [rows * columns for rows, columns in blocks])
    pairs = np.unique(np.stack([tiles, block]), axis=1)
    return int((np.unique(pairs[0], return_counts=True)[1] > 1).sum())


def _block(cells: Cells, seen: Seen, tiles: NDArray[np.int64]) -> tuple[int, int]:
    """(rows, columns) of the block that begins with the first of these cells; there is one that is not empty."""
    places = np.flatnonzero(seen)
    columns = _row_length(cells[places[0] :], seen[places[0] :])
    top = int(places[0]) // columns
    if places[0] and (top + 1) * columns > len(cells):
        return 1, len(cells)
    rows, block = top + 1, (-1, columns)
    while (end := (rows + 1) * columns) <= len(cells) and _goes_on(
        cells[top * columns : end].reshape(*block, 4),
        seen[top * columns : end].reshape(block),
        tiles[top * columns : end].reshape(block),
    ):
        rows += 1
    return rows, columns


def _row_length(cells: Cells, seen: Seen) -> int:
    """How many of the first cells stand side by side, empty ones included."""
    places = np.flatnonzero(seen)
    x1, y1, x2, y2 = cells[places].T
    level = (np.abs(y1 - y1[0]) <= AGREE * (y2[0] - y1[0])) & (np.abs(y2 - y2[0]) <= AGREE * (y2[0] - y1[0]))
    stops = np.flatnonzero(~level[1:] | (np.diff(x1 + x2) <= 0))
    return int(places[stops[0] + 1]) if len(stops) else len(cells)


def _goes_on(cells: Cells, seen: Seen, tiles: NDArray[np.int64]) -> bool:
    """Whether the last row of (R, C, 4) cells belongs to the rows before it; ``seen`` (R, C): not empty."""
    row, above, top = cells[-1], cells[-2], cells[0]
    here = seen[-1]
    of_one_tile = (tiles[-2:] == tiles[-2:, :1]).all()
    if of_one_tile and tiles[-1, 0] != tiles[-2, 0]:
        return False
    if not here.any():
        return True
    y1, y2 = row[here][0, [1, 3]]
    level = (np.abs(row[here][:, [1, 3]] - (y1, y2)) <= AGREE * (y2 - y1)).all()
    below = (row[:, [1, 3]].sum(1) > above[:, [1, 3]].sum(1))[here & seen[-2]].all()
    known = here & seen[0]
    width = AGREE * (top[:, 2] - top[:, 0])[known, None]
    aligned = (np.abs(row[:, [0, 2]] - top[:, [0, 2]])[known] <= width).all()
    return bool(level and below and aligned)
