"""How much of the annotated evidence survives in a selection, by lineage and by anchor. Exact for overlapping cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sightline.errors import SightlineError
from sightline.geometry.arrangement import Floats, Membership, arrange
from sightline.geometry.legibility import RegionLegibility, Sampling

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
        self._at_centre = self._cells_at_centres()
        self._piece_area, self._piece_cell = extent[overlapping].prod(axis=-1), np.nonzero(overlapping)[1]
        everything = np.ones((1, self._n), dtype=bool)
        self.visible = float(self._coverage(self._with_empty_cell(everything))[0]) if len(self._regions) else 0.0
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
        self,
        lineages: NDArray[np.bool_],
        anchors: NDArray[np.bool_] | None = None,
        shares: Floats | None = None,
    ) -> list[Geometry]:
        """(B, N) bool masks of lineage and, where they differ, of anchors; (B, N) shares where outputs are mixed."""
        size = max(1, BLOCK // (self._plane.cells_of_atom.member.size + self._n + 1))
        found: list[Geometry] = []
        for start in range(0, len(lineages), size):
            part = slice(start, start + size)
            found += self._measure(
                lineages[part],
                None if anchors is None else anchors[part],
                None if shares is None else shares[part],
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
        covered = self._plane.cells_of_atom.any(kept)
        inside = (covered * self._inside).sum(axis=1)
        ecr = self._coverage(kept, inside)
        anchor_ecr = ecr if anchors is None else self._coverage(self._with_empty_cell(anchors))
        lpp = _ratio(inside, (covered * self._plane.area).sum(axis=1))
        anchor_lpp = lpp if anchors is None else self._precision(self._with_empty_cell(anchors))
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

    def _coverage(self, kept: NDArray[np.bool_], inside: Floats | None = None) -> Floats:
        if inside is None:
            inside = (self._plane.cells_of_atom.any(kept) * self._inside).sum(axis=1)
        if self._union == "sum_above_5000":
            pieces = kept[:, self._piece_cell]
            inside = np.where(pieces.sum(axis=1) > PIECES, (pieces * self._piece_area).sum(axis=1), inside)
        return _ratio(inside, np.float64(self.area))

    def _precision(self, kept: NDArray[np.bool_]) -> Floats:
        covered = self._plane.cells_of_atom.any(kept)
        return _ratio((covered * self._inside).sum(axis=1), (covered * self._plane.area).sum(axis=1))

    def _cells_at_centres(self) -> Membership:
        x, y = (self._regions[:, :2] + self._regions[:, 2:]).T[..., None] / 2.0
        x1, y1, x2, y2 = self._cells.T
        region, cell = np.nonzero((x1 <= x) & (x <= x2) & (y1 <= y) & (y <= y2))
        return Membership.of(region, cell, len(self._regions), nobody=self._n)

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
