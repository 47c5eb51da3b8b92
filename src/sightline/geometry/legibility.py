"""How large evidence is on the way to the model, and what of an image is lit, marked and shown around it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

# An exact arrangement of rectangles: all edges cut the plane into atoms, and every rectangle is a set of atoms.
#
# Areas of unions and intersections then are sums over atoms, however cells overlap.

Floats = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Membership:
    """Pairs (group, member) sorted by group, at least one per group."""

    member: Indices
    starts: Indices

    @staticmethod
    def of(group: Indices, member: Indices, groups: int, nobody: int) -> Membership:
        """Groups 0..groups-1; those without a member get ``nobody``, an index whose value is false or zero."""
        lonely = np.flatnonzero(np.bincount(group, minlength=groups) == 0)
        group = np.concatenate([group, lonely])
        member = np.concatenate([member, np.full(lonely.shape, nobody)])
        by_group = np.argsort(group, kind="stable")
        starts = np.searchsorted(group[by_group], np.arange(groups))
        return Membership(member[by_group], starts)

    def any(self, values: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(B, members) -> (B, groups): whether some member of the group is true."""
        return np.logical_or.reduceat(values[:, self.member], self.starts, axis=1)

    def sum(self, values: Floats) -> Floats:
        """(B, members) -> (B, groups). Summed in a fixed order: a row's result does not depend on the batch."""
        return np.add.reduceat(values[:, self.member], self.starts, axis=1)


@dataclass(frozen=True)
class Arrangement:
    """Atoms of cells (N, 4) and regions (M, 4); the last atom is empty and belongs to nothing."""

    area: Floats
    """(A,) area of each atom."""
    cells_of_atom: Membership
    """For each atom, the cells that contain it; N for none."""
    atoms_of_region: Membership
    """For each region, the atoms it consists of."""
    in_region: NDArray[np.bool_]
    """(A,) whether the atom lies in some region."""


def arrange(cells: Floats, chosen: Indices, regions: Floats) -> Arrangement:
    """Arranges the ``chosen`` cells of (N, 4) together with all regions (M, 4)."""
    boxes = np.concatenate([cells[chosen], regions])
    xs, ys = np.unique(boxes[:, 0::2]), np.unique(boxes[:, 1::2])
    owner, place = _atoms(boxes, xs, ys)
    places, atom = np.unique(place, return_inverse=True)
    row, column = np.divmod(places, max(1, xs.size - 1))
    area = np.append(np.diff(xs)[column] * np.diff(ys)[row], 0.0)

    nothing = places.size
    of_cell = owner < chosen.size
    region, region_atom = owner[~of_cell] - chosen.size, atom[~of_cell]
    in_region = np.zeros(area.size, dtype=bool)
    in_region[region_atom] = True
    return Arrangement(
        area=area,
        cells_of_atom=Membership.of(atom[of_cell], chosen[owner[of_cell]], area.size, nobody=len(cells)),
        atoms_of_region=Membership.of(region, region_atom, len(regions), nobody=nothing),
        in_region=in_region,
    )


def _atoms(boxes: Floats, xs: Floats, ys: Floats) -> tuple[Indices, Indices]:
    """Pairs (box, atom) for boxes whose edges are among ``xs`` and ``ys``; atoms are numbered row by row."""
    left, right = np.searchsorted(xs, boxes[:, 0]), np.searchsorted(xs, boxes[:, 2])
    upper, lower = np.searchsorted(ys, boxes[:, 1]), np.searchsorted(ys, boxes[:, 3])
    wide, high = np.maximum(right - left, 0), np.maximum(lower - upper, 0)
    count = wide * high
    owner = np.repeat(np.arange(len(boxes)), count)
    nth = np.arange(owner.size) - np.repeat(np.cumsum(count) - count, count)
    row, column = np.divmod(nth, wide[owner])
    return owner, (upper[owner] + row) * max(1, xs.size - 1) + left[owner] + column


# How finely the evidence reaches the model: character height in source pixels, times what sampling leaves of it.
#
# Coverage asks whether a spot of the image is in some kept cell; a page shrunk to a quarter covers everything and
# loses the text. Legibility asks how many independent samples per character height arrive. docs/geometry.md has the
# equation.


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
