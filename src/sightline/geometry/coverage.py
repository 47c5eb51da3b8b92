"""How much of the annotated evidence survives in a selection, by lineage and by anchor. Exact for overlapping cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sightline.errors import SightlineError

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
    token_pixels: int = 0
    """Input pixels, after resizing, that one visual token is made from."""
    scale: float | None = None
    """Of a model without cells all that is known: input pixels per source pixel along an edge, at most 1."""

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

    def legibility(self, regions: ArrayLike) -> float | None:
        """Pixels of character height of the least legible of some regions at the scale; None where that is unknown."""
        heights = self.character_heights(np.asarray(regions, dtype=np.float64).reshape(-1, 4))
        return None if self.scale is None or not len(heights) else float(heights.min()) * self.scale


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


Union = Literal["exact", "sum_above_5000"]
"""``sum_above_5000`` reproduces published coverage values: with more than 5000 pieces region x kept cell, their areas
are added up as if nothing overlapped, and the result is capped at 1."""
PIECES = 5000
HALF = 0.5 - 1e-12
"""A region of which exactly half is covered counts as half covered, whatever the last bit says."""
BLOCK = 1 << 22
"""Booleans gathered at a time while many masks are measured."""


@dataclass(frozen=True)
class Geometry:
    """Where the surviving tokens come from, relative to the annotated regions of one probe. 0 without regions."""

    ecr: float
    """Evidence coverage: area(union of regions within union of lineage cells) / area(union of regions)."""
    anchor_ecr: float
    """The same for the anchors' cells."""
    center_recall: float
    """Fraction of regions whose centre lies in a lineage cell, borders included."""
    patch_recall: float
    """Fraction of the cells overlapping some region that are in the lineage."""
    lpp: float
    """Local precision: of the area of lineage cells that overlap some region, the fraction inside the regions."""
    geo_f1: float
    """Harmonic mean of ``ecr`` and ``lpp``."""
    anchor_lpp: float
    """``lpp`` of the anchors' cells."""
    anchor_geo_f1: float
    """Harmonic mean of ``anchor_ecr`` and ``anchor_lpp``."""
    worst_region: float
    """Smallest coverage of a single region."""
    all_half: bool
    """Whether every region is at least half covered."""
    evidence_cells: int
    """Number of cells that overlap some region, kept or not."""
    visible: float = 0.0
    """``ecr`` of all N tokens: the share of the evidence that the vision tower sees at all."""
    legibility: float | None = None
    """Pixels of character height that reach the model for the least legible region; None: sampling unknown."""


class RegionGeometry:
    """Everything about (cells, regions) that does not depend on the mask, so that measuring one is a few sums.

    Parameters
    ----------
    cells: (N, 4), possibly overlapping, possibly not covering the whole image.
    regions: (M, 4), possibly overlapping, possibly outside every cell (then uncovered), possibly none.
    sampling: how finely the tower reads the image, for legibility.
    """

    def __init__(
        self, cells: ArrayLike, regions: ArrayLike, *, union: Union = "exact", sampling: Sampling | None = None
    ) -> None:
        self._cells = np.asarray(cells, dtype=np.float64).reshape(-1, 4)
        self._regions = np.asarray(regions, dtype=np.float64).reshape(-1, 4)
        self._union = union
        self._n = len(self._cells)
        corner = np.maximum(self._regions[:, None, :2], self._cells[:, :2])
        extent = np.minimum(self._regions[:, None, 2:], self._cells[:, 2:]) - corner
        overlapping = (extent > 0.0).all(axis=-1)
        self.evidence: NDArray[np.bool_] = np.logical_or.reduce(overlapping, axis=0)
        """(N,) cells that share area with at least one region."""
        self._evidence = np.flatnonzero(self.evidence)
        self._plane = arrange(self._cells, self._evidence, self._regions)
        self._inside = self._plane.area * self._plane.in_region
        self._whole = self._plane.atoms_of_region.sum(self._plane.area[None])[0] if len(self._regions) else np.zeros(0)
        self.area = float(self._inside.sum())
        """Area of the union of the regions."""
        x, y = (self._regions[:, :2] + self._regions[:, 2:]).T[..., None] / 2.0
        x1, y1, x2, y2 = self._cells.T
        region, cell = np.nonzero((x1 <= x) & (x <= x2) & (y1 <= y) & (y <= y2))
        self._at_centre = Membership.of(region, cell, len(self._regions), nobody=self._n)
        self._piece_area, self._piece_cell = extent[overlapping].prod(axis=-1), np.nonzero(overlapping)[1]
        everything = np.ones((1, self._n), dtype=bool)
        self.visible = float(self._coverage(self._with_empty_cell(everything))[1][0]) if len(self._regions) else 0.0
        """Coverage by all N cells: less than 1 where the image processor crops."""
        self._legibility = (
            RegionLegibility(self._plane, self._whole, self._cells, self._regions, sampling) if sampling else None
        )

    def measure(self, lineage: ArrayLike, anchors: ArrayLike | None = None, shares: Floats | None = None) -> Geometry:
        """One selection: lineage and, where they differ, anchors; indices (-1 is skipped) or an (N,) bool mask.

        ``shares`` (N,), for a selection that merges: the largest part that each source has in one output.
        """
        rows = None if anchors is None else self._mask(anchors)[None]
        return self.measure_many(self._mask(lineage)[None], rows, None if shares is None else shares[None])[0]

    def measure_many(
        self, lineages: NDArray[np.bool_], anchors: NDArray[np.bool_] | None = None, shares: Floats | None = None
    ) -> list[Geometry]:
        """(B, N) bool masks of lineage and, where they differ, of anchors; (B, N) shares where outputs are mixed."""
        size = max(1, BLOCK // (self._plane.cells_of_atom.member.size + self._n + 1))
        found: list[Geometry] = []
        for start in range(0, len(lineages), size):
            part = slice(start, start + size)
            found += self._measure(
                lineages[part], None if anchors is None else anchors[part], None if shares is None else shares[part]
            )
        return found

    def _measure(
        self, lineages: NDArray[np.bool_], anchors: NDArray[np.bool_] | None, shares: Floats | None
    ) -> list[Geometry]:
        rows = len(lineages)
        if not len(self._regions):
            return [Geometry(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, False, 0)] * rows
        kept = self._with_empty_cell(lineages)
        parts = kept if shares is None else self._with_empty_cell(shares)
        covered, ecr, lpp = self._coverage(kept)
        anchor_ecr, anchor_lpp = (ecr, lpp) if anchors is None else self._coverage(self._with_empty_cell(anchors))[1:]
        by_region = _ratio(self._plane.atoms_of_region.sum(covered * self._plane.area), self._whole)
        columns: Sequence[Any] = (
            ecr,
            anchor_ecr,
            self._at_centre.any(kept).mean(axis=1),
            _ratio(lineages[:, self._evidence].sum(axis=1), np.float64(self._evidence.size)),
            lpp,
            _ratio(2.0 * ecr * lpp, ecr + lpp),
            anchor_lpp,
            _ratio(2.0 * anchor_ecr * anchor_lpp, anchor_ecr + anchor_lpp),
            by_region.min(axis=1),
            (by_region >= HALF).all(axis=1),
            np.full(rows, self._evidence.size),
            np.full(rows, self.visible),
            np.full(rows, None) if self._legibility is None else self._legibility.measure(parts),
        )
        return [Geometry(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def _coverage(self, kept: NDArray[np.bool_]) -> tuple[NDArray[np.bool_], Floats, Floats]:
        """(B, A) whether an atom is covered, (B,) coverage of the evidence and (B,) local precision."""
        covered = self._plane.cells_of_atom.any(kept)
        inside = (covered * self._inside).sum(axis=1)
        precision = _ratio(inside, (covered * self._plane.area).sum(axis=1))
        if self._union == "sum_above_5000":
            pieces = kept[:, self._piece_cell]
            inside = np.where(pieces.sum(axis=1) > PIECES, (pieces * self._piece_area).sum(axis=1), inside)
        return covered, _ratio(inside, np.float64(self.area)), precision

    def _mask(self, tokens: ArrayLike) -> NDArray[np.bool_]:
        tokens = np.asarray(tokens)
        if tokens.dtype == np.bool_:
            return tokens
        mask = np.zeros(self._n, dtype=bool)
        tokens = tokens.astype(np.int64)
        if tokens.size and (tokens.max() >= self._n or tokens.min() < -1):
            raise SightlineError(f"token index {tokens.max()} lies outside the {self._n} cells of the image")
        mask[tokens[tokens >= 0]] = True
        return mask

    def _with_empty_cell(self, masks: NDArray[Any]) -> NDArray[Any]:
        """A last column that is never kept, for atoms and centres that lie in no cell."""
        if masks.shape[1] != self._n:
            raise SightlineError(f"a mask of {masks.shape[1]} tokens does not fit the {self._n} cells of the image")
        return np.concatenate([masks, np.zeros((len(masks), 1), dtype=masks.dtype)], axis=1)


def _ratio(part: Any, whole: Any) -> Floats:
    """part / whole, at most 1, and 0 where there is nothing to divide by."""
    some = whole > 0.0
    return np.where(some, np.minimum(1.0, part / np.where(some, whole, 1.0)), 0.0)


# Areas of the regions of many questions about one kind of image, to the last bit what ``RegionGeometry.area`` is.
#
# An area is added up over the atoms into which cells cut a region. Where cells are a raster and a region lies within
# it, the atoms are a small grid, and grids of one shape are added up together.

Boxes = Sequence[Sequence[float]]
Whole = NDArray[np.int64]


def region_areas(cells: Floats, questions: Sequence[Boxes]) -> Floats:
    """(N, 4) cells and the regions of q questions -> (q,) area of the union of each question's regions."""
    areas = np.zeros(len(questions))
    lines = _raster(cells)
    single = np.array([len(regions) == 1 for regions in questions], dtype=bool)
    fast = np.flatnonzero(single) if lines is not None else np.zeros(0, dtype=np.int64)
    if lines is not None and len(fast):
        boxes = np.array([questions[int(place)][0] for place in fast], dtype=np.float64)
        spans = [_Span.of(axis, boxes[:, i], boxes[:, i + 2]) for i, axis in enumerate(lines)]
        within = spans[0].within & spans[1].within
        areas[fast[within]] = _grid_areas(*(span.chosen(within) for span in spans))
        fast = fast[within]
    for place in np.setdiff1d(np.arange(len(questions)), fast):
        areas[place] = _area(cells, questions[int(place)])
    return areas


def _area(cells: Floats, regions: Boxes) -> float:
    """The same for cells of any kind."""
    boxes = np.asarray(regions, dtype=np.float64).reshape(-1, 4)
    extent = np.minimum(boxes[:, None, 2:], cells[:, 2:]) - np.maximum(boxes[:, None, :2], cells[:, :2])
    touched = np.flatnonzero((extent > 0.0).all(axis=-1).any(axis=0))
    plane = arrange(cells, touched, boxes)
    return float((plane.area * plane.in_region).sum())


def _raster(cells: Floats) -> tuple[Floats, Floats] | None:
    """The vertical and horizontal lines of cells that are a raster, each place covered once; else None."""
    x, y = np.unique(cells[:, 0::2]), np.unique(cells[:, 1::2])
    if len(cells) != (len(x) - 1) * (len(y) - 1):
        return None
    left, upper = (edges.ravel() for edges in np.meshgrid(x[:-1], y[:-1]))
    right, lower = (edges.ravel() for edges in np.meshgrid(x[1:], y[1:]))
    ordered = cells[np.lexsort((cells[:, 0], cells[:, 1]))]
    return (x, y) if np.array_equal(ordered, np.stack([left, upper, right, lower], axis=1)) else None


@dataclass(frozen=True)
class _Span:
    """Where regions lie along one axis: which cells they touch, and the pieces into which those cut them."""

    lines: Floats
    start: Floats
    end: Floats
    first: Whole
    last: Whole

    @classmethod
    def of(cls, lines: Floats, start: Floats, end: Floats) -> _Span:
        first = np.searchsorted(lines, start, side="right") - 1
        return cls(lines, start, end, first, np.searchsorted(lines, end, side="left") - 1)

    @property
    def within(self) -> NDArray[np.bool_]:
        """Whether a region has an extent and lies between the outermost lines."""
        inside = (self.lines[0] <= self.start) & (self.start < self.end) & (self.end <= self.lines[-1])
        return np.asarray(inside, dtype=bool)

    def chosen(self, which: NDArray[np.bool_]) -> _Span:
        return _Span(self.lines, self.start[which], self.end[which], self.first[which], self.last[which])

    def shapes(self) -> Whole:
        """(q, 3) how many pieces, and whether the cells at either end stick out of the region."""
        before, behind = self.start > self.lines[self.first], self.end < self.lines[self.last + 1]
        return np.stack([self.last - self.first + 1, before, behind], axis=1)

    def pieces(self, which: Whole, shape: Whole) -> Floats:
        """(b, w) lengths of the atoms of regions of one shape; 0 for what sticks out."""
        count, before, behind = (int(part) for part in shape)
        edges = self.lines[self.first[which][:, None] + np.arange(count + 1)]
        edges[:, 0], edges[:, -1] = self.start[which], self.end[which]
        return np.pad(np.diff(edges, axis=1), ((0, 0), (before, behind)))


def _grid_areas(across: _Span, down: _Span) -> Floats:
    """(q,) areas of regions within a raster, shape by shape."""
    areas = np.zeros(len(across.start))
    every, kind = np.unique(np.concatenate([across.shapes(), down.shapes()], axis=1), axis=0, return_inverse=True)
    order = np.argsort(kind, kind="stable")
    starts = np.searchsorted(kind[order], np.arange(len(every) + 1))
    for shape, low, high in zip(every, starts[:-1], starts[1:], strict=True):
        which = order[low:high]
        atoms = down.pieces(which, shape[3:])[:, :, None] * across.pieces(which, shape[:3])[:, None, :]
        # Behind all atoms stands an empty one, as in an arrangement: sums of as many terms, in the same order.
        areas[which] = np.pad(atoms.reshape(len(which), -1), ((0, 0), (0, 1))).sum(axis=1)
    return areas
