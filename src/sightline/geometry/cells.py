"""Token -> cell maps: plain grids, grids on a centre crop, grids on tiles with a thumbnail.

A cell is (x1, y1, x2, y2) in fractions of the original image. Tokens are row-major within a grid.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sightline.errors import SightlineError

Cells = NDArray[np.float64]
"""(N, 4)"""


def grid_cells(rows: int, columns: int) -> Cells:
    """Cell (r, c) of a grid over the whole image: (c / columns, r / rows, (c + 1) / columns, (r + 1) / rows)."""
    row, column = np.divmod(np.arange(rows * columns), columns)
    return np.stack([column / columns, row / rows, (column + 1) / columns, (row + 1) / rows], axis=-1)


def placed_in(cells: Cells, window: Cells) -> Cells:
    """Cells of the unit square moved into ``window`` (4,)."""
    corner, extent = window[:2], window[2:] - window[:2]
    placed: Cells = np.tile(corner, 2) + cells * np.tile(extent, 2)
    return placed


def within_image(cells: Cells) -> Cells:
    """Cells without what reaches beyond the image, where a processor pads.

    One that sees padding alone is empty, at the lower right corner of the last before it that is not, or at (0, 0).
    """
    clipped = np.clip(cells, 0.0, 1.0)
    corner = np.zeros(2)
    for cell in clipped:
        if (cell[2:] > cell[:2]).all():
            corner = cell[2:].copy()
        else:
            cell[:] = np.tile(corner, 2)
    return clipped


def resized_shortest_edge(size: tuple[int, int], shortest_edge: int) -> tuple[int, int]:
    """(width, height) after "shortest edge to s": the longer edge becomes floor(s * long / short)."""
    width, height = size
    if width <= height:
        return shortest_edge, int(shortest_edge * height / width)
    return int(shortest_edge * width / height), shortest_edge


def crop_window(size: tuple[int, int], shortest_edge: int, crop: tuple[int, int]) -> Cells:
    """The part of a (width, height) image that survives "shortest edge to s, then centre crop to (width, height)".

    Crop offsets are rounded down, as image processors do it. A crop larger than the resized image pads; the window then
    reaches beyond 0..1.
    """
    width, height = resized_shortest_edge(size, shortest_edge)
    left, upper = (width - crop[0]) // 2, (height - crop[1]) // 2
    return np.array([left / width, upper / height, (left + crop[0]) / width, (upper + crop[1]) / height])


def cropped_cells(rows: int, columns: int, size: tuple[int, int], shortest_edge: int, crop: tuple[int, int]) -> Cells:
    """Grid cells of a processor that sees only a centre crop: the margins that were cut away lie in no cell."""
    return placed_in(grid_cells(rows, columns), crop_window(size, shortest_edge, crop))


def tiled_canvas(size: tuple[int, int], tile: tuple[int, int], fewest: int, most: int) -> tuple[int, int]:
    """(columns, rows) of tiles for a (width, height) image: the canvas whose aspect ratio is closest to the image's.

    Canvases are tried from fewest to most tiles. Of two that are equally close the larger wins if the image has more
    than half as many pixels as that canvas.
    """
    width, height = size
    canvases = [(c, r) for c in range(1, most + 1) for r in range(1, most + 1) if fewest <= c * r <= most]
    best, best_difference = (1, 1), float("inf")
    for columns, rows in sorted(canvases, key=lambda canvas: canvas[0] * canvas[1]):
        difference = abs(width / height - columns / rows)
        enough_pixels = width * height > 0.5 * tile[0] * tile[1] * columns * rows
        if difference < best_difference or (difference == best_difference and enough_pixels):
            best, best_difference = (columns, rows), difference
    return best


def tile_arrangement(canvas: tuple[int, int], count: int, *, strict: bool = True) -> tuple[int, int, bool]:
    """Columns, rows and whether a thumbnail follows, for ``count`` encoded patches of one image.

    A count that fits neither the canvas nor the canvas with a thumbnail is an error; with ``strict=False`` the patches
    are laid side by side, as published runs did.
    """
    columns, rows = canvas
    if count == 1:
        return 1, 1, False
    if count == columns * rows:
        return columns, rows, False
    if count == columns * rows + 1 and count > 2:  # a single tile is the whole image already
        return columns, rows, True
    if strict:
        raise SightlineError(
            f"{count} image patches do not fit a canvas of {columns} x {rows} tiles, with or without a thumbnail; "
            "check the processor's tile limits"
        )
    return count, 1, False


def tile_cells(canvas: tuple[int, int], count: int, rows: int, columns: int, *, strict: bool = True) -> Cells:
    """Cells of ``count`` patches of rows x columns tokens: tiles row by row, then the thumbnail over everything."""
    tile_columns, tile_rows, thumbnail = tile_arrangement(canvas, count, strict=strict)
    local = grid_cells(rows, columns)
    patches = [placed_in(local, window) for window in grid_cells(tile_rows, tile_columns)]
    return np.concatenate([*patches, local] if thumbnail else patches)


# The grids that tokens are laid out in, read from their cells: tiles, a thumbnail, a base image, a stitched grid.

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


# Which patches a token is made from, and where they stand in a tower that lines them up in an order of its own.


def merged_patches(rows: int, columns: int, merge: int) -> NDArray[np.int64]:
    """(N, merge * merge) patches of each token of a rows x columns grid, where patches are counted row by row.

    Token (r, c) is made from the patches in rows r * merge.. and columns c * merge.. of (columns * merge) in a row.
    """
    patches = np.arange(rows * columns * merge**2).reshape(rows, merge, columns, merge)
    return patches.transpose(0, 2, 1, 3).reshape(rows * columns, merge**2)


def window_places(rows: int, columns: int, side: int) -> NDArray[np.int64]:
    """(N,) where each token of a row-major grid stands once windows of side x side tokens lie one behind the other.

    Windows follow one another row by row, as do the tokens of each; those at the right and lower edge may be smaller.
    Token (r, c) comes before all that are greater in (r // side, c // side, r, c).
    """
    row, column = np.divmod(np.arange(rows * columns), columns)
    order = np.lexsort((column, row, column // side, row // side))
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places
