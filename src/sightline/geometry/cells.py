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
