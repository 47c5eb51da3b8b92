"""Areas of the regions of many questions about one kind of image, to the last bit what ``RegionGeometry.area`` is.

An area is added up over the atoms into which cells cut a region. Where cells are a raster and a region lies within it,
the atoms are a small grid, and grids of one shape are added up together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sightline.geometry.arrangement import Floats, arrange

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


class _Span:
    """Where regions lie along one axis: which cells they touch, and the pieces into which those cut them."""

    def __init__(self, lines: Floats, start: Floats, end: Floats, first: Whole, last: Whole) -> None:
        self.lines, self.start, self.end, self.first, self.last = lines, start, end, first, last

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
