"""Areas of many questions at once are to the bit those of each question alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sightline.geometry.coverage import RegionGeometry, region_areas


def raster(rows: int, columns: int) -> np.ndarray:
    y, x = np.divmod(np.arange(rows * columns), columns)
    edges = np.stack([x / columns, y / rows, (x + 1) / columns, (y + 1) / rows], axis=1)
    return edges.astype(np.float32).astype(np.float64)


CELLS = {
    "raster": raster(15, 20),
    "one row": raster(1, 7),
    "cropped": 0.1 + 0.8 * raster(24, 24),
    "raster and thumbnail": np.concatenate([raster(5, 5), raster(3, 3)]),
    "a cell missing": raster(4, 4)[1:],
}
place = st.one_of(st.floats(0.0, 1.0, width=32), st.integers(0, 20).map(lambda line: line / 20))
box = st.tuples(place, place, place, place).map(
    lambda ends: (min(ends[0], ends[2]), min(ends[1], ends[3]), max(ends[0], ends[2]), max(ends[1], ends[3]))
)
questions = st.lists(st.lists(box, min_size=1, max_size=3), min_size=1, max_size=12)


@pytest.mark.parametrize("kind", CELLS)
@settings(max_examples=40, deadline=None)
@given(asked=questions)
def test_areas_are_those_of_region_geometry(kind: str, asked: list[list[tuple[float, ...]]]) -> None:
    cells = CELLS[kind]
    expected = [RegionGeometry(cells, regions).area for regions in asked]
    assert region_areas(cells, asked).tolist() == expected


def test_no_question_has_no_area() -> None:
    assert region_areas(raster(2, 2), []).tolist() == []
