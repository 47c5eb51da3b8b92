"""The grids that tokens were laid out in, read from their cells: tiles, a thumbnail, a base image and a stitched grid."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sightline.geometry.cells import Cells

AGREE = 0.25
"""Edges that differ by no more than this share of a cell are the same edge."""

Blocks = tuple[tuple[int, int], ...]
"""(rows, columns) of each, in order; together they have as many places as there are tokens."""


def token_blocks(cells: Cells) -> Blocks:
    """Row-major blocks that tokens with these (N, 4) cells are made of, in order; ((1, N),) if they are not.

    A row goes on to the right along the same upper and lower edge; a block goes on downwards with rows that have the
    edges of its first. Tokens that see padding alone (empty cells) continue whatever row or block they stand in.
    """
    count = len(cells)
    blocks: list[tuple[int, int]] = []
    first = 0
    while first < count:
        columns = _row_length(cells[first:])
        rows = 1
        while _continues(cells[first : first + (rows + 1) * columns], rows, columns):
            rows += 1
        blocks.append((rows, columns))
        first += rows * columns
    # Many single tokens are no arrangement: nobody would call them grids.
    alone = sum(rows * columns == 1 for rows, columns in blocks)
    return ((1, count),) if 2 * alone > count or alone > 1 else tuple(blocks)


def _row_length(cells: Cells) -> int:
    """How many of the first cells stand side by side."""
    height = AGREE * (cells[0, 3] - cells[0, 1])
    level = (np.abs(cells[1:, [1, 3]] - cells[0, [1, 3]]) <= height).all(1)
    onwards = cells[1:, 0] > cells[:-1, 0]
    stops: NDArray[np.int64] = np.flatnonzero(~(level & onwards))
    return int(stops[0]) + 1 if len(stops) else len(cells)


def _continues(cells: Cells, rows: int, columns: int) -> bool:
    """Whether the last ``columns`` cells are one more row of the block before them."""
    if len(cells) < (rows + 1) * columns:
        return False
    top, above, row = cells[:columns], cells[(rows - 1) * columns : rows * columns], cells[rows * columns :]
    width = AGREE * (top[:, 2] - top[:, 0])[:, None]
    height = AGREE * (row[0, 3] - row[0, 1])
    below = (row[:, 1] > above[:, 1]).all()
    level = (np.abs(row[:, [1, 3]] - row[0, [1, 3]]) <= height).all()
    return bool(below and level and (np.abs(row[:, [0, 2]] - top[:, [0, 2]]) <= width).all())
