"""How finely the evidence reaches the model: character height in source pixels, times what sampling leaves of it.

Coverage asks whether a spot of the image is in some kept cell; a page shrunk to a quarter covers everything and loses
the text. Legibility asks how many independent samples per character height arrive. docs/geometry.md has the equation.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from sightline.geometry.arrangement import Arrangement, Floats


@dataclass(frozen=True)
class Sampling:
    """How a vision tower reads one image."""

    size: tuple[int, int]
    """(width, height) in pixels of the image that was handed to the image processor."""
    token_pixels: int
    """Input pixels, after resizing, that one visual token is made from."""

    def density(self, cells: Floats) -> Floats:
        """(N,) samples per source pixel within each of the (N, 4) cells; enlarging an image adds none, so at most 1."""
        width, height = self.size
        pixels = (cells[:, 2] - cells[:, 0]) * (cells[:, 3] - cells[:, 1]) * (width * height)
        return np.minimum(1.0, self.token_pixels / pixels)

    def character_heights(self, regions: Floats) -> Floats:
        """(M,) source pixels: the shorter side of each region, so that text set vertically is not taken for tall."""
        sides = (regions[:, 2:] - regions[:, :2]) * np.asarray(self.size)
        shorter: Floats = sides.min(axis=1)
        return shorter


class RegionLegibility:
    """What of (cells, regions, sampling) does not depend on the mask."""

    def __init__(self, plane: Arrangement, whole: Floats, cells: Floats, regions: Floats, sampling: Sampling) -> None:
        self._plane = plane
        self._whole = np.where(whole > 0.0, whole, 1.0)
        self._density = np.append(sampling.density(cells), 0.0)[plane.cells_of_atom.member]
        self._heights = sampling.character_heights(regions)

    def measure(self, shares: Floats) -> Floats:
        """(B, N + 1) the part that each source has in an output, the last one 0 -> (B,) pixels, the worst region's.

        Where several outputs show the same spot the finest of them counts: a thumbnail adds nothing to a tile.
        """
        cells = self._plane.cells_of_atom
        finest = np.maximum.reduceat(shares[:, cells.member] * self._density, cells.starts, axis=1)
        mean = self._plane.atoms_of_region.sum(finest * self._plane.area) / self._whole
        worst: Floats = (self._heights * np.sqrt(mean)).min(axis=1)
        return worst
