"""Coverage against an independent polygon library, and the laws it must obey."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from shapely.geometry import box
from shapely.geometry.base import BaseGeometry
from shapely.ops import unary_union

from sightline.geometry.coverage import RegionGeometry

# A coarse lattice makes shared edges and exact overlaps common; the free coordinates make the rest. They are rounded
# because the library loses whole rectangles when two edges differ by next to nothing (see the exact test below).
free = st.floats(0.0, 1.0, allow_nan=False).map(lambda value: round(value, 9))
coordinate = st.one_of(st.integers(0, 12).map(lambda i: i / 12), free)


@st.composite
def rectangles(draw: st.DrawFn, least: int, most: int) -> list[tuple[float, float, float, float]]:
    found = []
    for _ in range(draw(st.integers(least, most))):
        xs, ys = sorted([draw(coordinate), draw(coordinate)]), sorted([draw(coordinate), draw(coordinate)])
        if xs[1] - xs[0] < 1e-6 or ys[1] - ys[0] < 1e-6:  # slivers below the library's own precision
            xs, ys = [0.25, 0.5], [0.125, 0.75]
        found.append((xs[0], ys[0], xs[1], ys[1]))
    return found


scenes = st.tuples(rectangles(1, 12), rectangles(1, 5), st.integers(0, 2**12 - 1))


def kept_mask(n: int, bits: int) -> np.ndarray:
    return np.array([bits >> i & 1 for i in range(n)], dtype=bool)


def union(rectangles: list[tuple[float, float, float, float]]) -> BaseGeometry:
    return unary_union([box(*r) for r in rectangles])


def exact_area(rectangles: list[tuple[float, float, float, float]]) -> Fraction:
    """Area of the union in rational arithmetic: every elementary rectangle between neighbouring edges, in or out."""
    exact = [tuple(Fraction(value) for value in rectangle) for rectangle in rectangles]
    xs, ys = (sorted({r[axis] for r in exact} | {r[axis + 2] for r in exact}) for axis in (0, 1))
    return sum(
        (right - left) * (bottom - top)
        for left, right in pairwise(xs)
        for top, bottom in pairwise(ys)
        if any(r[0] <= left and right <= r[2] and r[1] <= top and bottom <= r[3] for r in exact)
    ) + Fraction(0)


@settings(max_examples=200)
@given(st.lists(st.tuples(*[st.floats(0.0, 1.0, allow_nan=False)] * 4), min_size=1, max_size=5))
@example([(0.0, 0.0, 0.5, 0.25), (0.25, 0.125, 0.5, 0.75), (1 / 12, 5e-324, 1.0, 1 / 12), (0.0, 1 / 12, 1 / 6, 1 / 6)])
def test_the_union_is_exact_for_any_floats(corners: list[tuple[float, float, float, float]]) -> None:
    regions = [(min(a, c), min(b, d), max(a, c), max(b, d)) for a, b, c, d in corners]
    assert RegionGeometry([(0.0, 0.0, 1.0, 1.0)], regions).area == pytest.approx(float(exact_area(regions)), abs=1e-12)


@settings(max_examples=300)
@given(scenes)
def test_areas_equal_shapely(scene: tuple[list, list, int]) -> None:
    cells, regions, bits = scene
    mask = kept_mask(len(cells), bits)
    plane = RegionGeometry(cells, regions)
    found = plane.measure(mask)
    evidence = union(regions)
    assert plane.area == pytest.approx(evidence.area, abs=1e-9)
    kept = [cell for cell, keep in zip(cells, mask, strict=True) if keep]
    assert found.ecr == pytest.approx(evidence.intersection(union(kept)).area / evidence.area, abs=1e-9)
    touching = [c for c, near in zip(cells, plane.evidence, strict=True) if near]
    kept_touching = [c for c, near, keep in zip(cells, plane.evidence, mask, strict=True) if near and keep]
    around = union(kept_touching)
    precision = evidence.intersection(around).area / around.area if kept_touching else 0.0
    assert found.lpp == pytest.approx(precision, abs=1e-9)
    assert found.evidence_cells == len(touching)
    single = [box(*r).intersection(union(kept)).area / box(*r).area for r in regions]
    assert found.worst_region == pytest.approx(min(single), abs=1e-9)


@settings(max_examples=200)
@given(scenes, st.integers(0, 2**12 - 1), st.randoms(use_true_random=False))
def test_more_never_covers_less_and_neither_order_nor_repetition_matters(
    scene: tuple[list, list, int], more: int, shuffle
) -> None:
    cells, regions, bits = scene
    mask = kept_mask(len(cells), bits)
    plane = RegionGeometry(cells, regions)
    few, many = plane.measure_many(np.stack([mask, kept_mask(len(cells), bits | more)]))
    for name in ("ecr", "anchor_ecr", "center_recall", "patch_recall", "worst_region"):
        assert getattr(few, name) <= getattr(many, name) + 1e-12
    assert few.all_half <= many.all_half

    turned, mixed = list(range(len(cells))), regions[:]
    shuffle.shuffle(turned)
    shuffle.shuffle(mixed)
    there = RegionGeometry([cells[i] for i in turned], mixed).measure(mask[turned])
    assert vars(plane.measure(mask)) == pytest.approx(vars(there), abs=1e-12)

    twice = RegionGeometry(cells, [*regions, *regions])
    assert plane.area == pytest.approx(twice.area, abs=1e-15)
    for name in ("ecr", "lpp", "geo_f1", "worst_region"):
        assert getattr(plane.measure(mask), name) == pytest.approx(getattr(twice.measure(mask), name), abs=1e-12)
