"""Token -> cell maps: plain grids, grids on a centre crop, grids on tiles with a thumbnail.

A cell is (x1, y1, x2, y2) in fractions of the original image. Tokens are row-major within a grid.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

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


# Cells of a picture that is cut into tiles and stitched together again, without its padding (LLaVA-NeXT, OneVision).
#
# The picture is fitted into a canvas of tiles and padded to fill it, each tile becomes a square of patches, and the
# squares laid side by side are one grid. Rows or columns of patches that show padding alone are taken away; a grid
# that is too large is shrunken by interpolation, so that a token reads two neighbours along each axis.

Size = tuple[int, int]
"""(width, height)"""
Indices = NDArray[np.int64]
Floats = NDArray[np.float64]


def best_canvas(size: Size, canvases: Iterable[Size]) -> Size:
    """The canvas on which most of the image's own pixels survive; of several the smallest, the first of equal ones."""
    width, height = size

    def merit(canvas: Size) -> tuple[int, int]:
        scale = min(canvas[0] / width, canvas[1] / height)
        survive = min(int(width * scale) * int(height * scale), width * height)
        return survive, survive - canvas[0] * canvas[1]

    return max(canvases, key=merit)


def fitted(size: Size, canvas: Size) -> Size:
    """The image as large as it fits into the canvas; the side that does not fill it is rounded up."""
    across, down = canvas[0] / size[0], canvas[1] / size[1]
    if across < down:
        return canvas[0], min(math.ceil(size[1] * across), canvas[1])
    return min(math.ceil(size[0] * down), canvas[0]), canvas[1]


def without_padding(size: Size, grid: Size) -> tuple[range, range]:
    """Columns and rows of a (columns, rows) grid over the canvas that are left when padding is taken away.

    As many go at either end. The image's own extent is rounded down to whole patches, so that the outermost of them
    may still show a stripe of padding, or the image lose one.
    """
    columns, rows = grid
    if size[0] / size[1] > columns / rows:
        away = (rows - int(round(size[1] * (columns / size[0]), 7))) // 2
        return range(columns), range(away, rows - away)
    away = (columns - int(round(size[0] * (rows / size[1]), 7))) // 2
    return range(away, columns - away), range(rows)


@dataclass(frozen=True)
class AxisReads:
    """Which patches along one axis of the canvas each of n tokens reads: (1 - share) first + share second."""

    first: Indices
    """(n,)"""
    second: Indices
    """(n,) the same as ``first`` where the share is 0"""
    share: Floats
    """(n,)"""

    @staticmethod
    def each(kept: range) -> AxisReads:
        places = np.arange(kept.start, kept.stop)
        return AxisReads(places, places, np.zeros(len(places)))

    @staticmethod
    def shrunken(kept: range, outputs: int) -> AxisReads:
        """Linear interpolation of n patches to m outputs: output i lies at (i + 1/2) n / m - 1/2, at least at 0.

        In whole numbers: first = ((2 i + 1) n - m) div 2 m, share = what is left over 2 m.
        """
        places = np.maximum((2 * np.arange(outputs) + 1) * len(kept) - outputs, 0)
        first, left = np.divmod(places, 2 * outputs)
        share = np.where(first < len(kept) - 1, left / (2 * outputs), 0.0)
        return AxisReads(kept.start + first, kept.start + first + (share > 0), share)


@dataclass(frozen=True)
class Canvas:
    """An image on its canvas of square tiles of ``side`` x ``side`` patches.

    ``tile`` and ``patch`` are their edges in pixels. Patches that do not fill a tile leave a margin to the right and
    below that nothing reads.
    """

    image: Size
    canvas: Size
    tile: int
    patch: int

    @property
    def side(self) -> int:
        return self.tile // self.patch

    @property
    def tiles(self) -> Size:
        """(columns, rows)"""
        return self.canvas[0] // self.tile, self.canvas[1] // self.tile

    def kept(self) -> tuple[range, range]:
        """Columns and rows of patches without padding."""
        return without_padding(self.image, (self.tiles[0] * self.side, self.tiles[1] * self.side))

    def cells(self, columns: AxisReads, rows: AxisReads) -> Cells:
        """(N, 4) extents of all that a token reads, row by row; they reach beyond 0..1 where it reads padding."""
        x, y = (self._extents(reads, axis) for axis, reads in enumerate((columns, rows)))
        place = np.indices((len(y), len(x))).reshape(2, -1)
        return np.stack([x[place[1], 0], y[place[0], 0], x[place[1], 1], y[place[0], 1]], axis=-1)

    def _extents(self, reads: AxisReads, axis: int) -> Floats:
        """(n, 2) from where to where, in fractions of the image. An odd pixel of padding lies behind the image."""
        length = fitted(self.image, self.canvas)[axis]
        before = (self.canvas[axis] - length) // 2
        extents = np.stack([self._pixels(reads.first), self._pixels(reads.second) + self.patch], axis=-1)
        found: Floats = (extents - before) / length
        return found

    def _pixels(self, patches: Indices) -> Indices:
        """Where patches of the stitched grid begin on the canvas."""
        tile, within = np.divmod(patches, self.side)
        begin: Indices = tile * self.tile + within * self.patch
        return begin

    def patches(self, columns: Indices, rows: Indices) -> tuple[Indices, Indices]:
        """(N,) tiles and (N,) patches within them, both row by row, of places in the stitched grid."""
        (across, column), (down, row) = np.divmod(columns, self.side), np.divmod(rows, self.side)
        return down * self.tiles[0] + across, row * self.side + column
