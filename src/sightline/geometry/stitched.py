"""Cells of a picture that is cut into tiles and stitched together again, without its padding (LLaVA-NeXT, OneVision).

The picture is fitted into a canvas of tiles and padded to fill it, each tile becomes a square of patches, and the
squares laid side by side are one grid. Rows or columns of patches that show padding alone are taken away; a grid that
is too large is shrunken by interpolation, so that a token reads two neighbours along each axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sightline.geometry.cells import Cells

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
