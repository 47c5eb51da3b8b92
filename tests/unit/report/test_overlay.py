from __future__ import annotations

import numpy as np
from PIL import Image

from sightline.report.hero import DROPPED, MERGED, OUTSIDE, cell_path, overlay

HALVES = np.array([[0, 0, 0.5, 1], [0.5, 0, 1, 1]])


def shade(picture: Image.Image, x: int, y: int = 5) -> float:
    return picture.getpixel((x, y))[0] / 200  # type: ignore[index]


def test_kept_cells_are_lit_and_dropped_cells_dimmed() -> None:
    image = Image.new("RGB", (100, 60), (200, 200, 200))
    picture = overlay(image, HALVES, np.array([True, False]), [(0.6, 0.4, 0.9, 0.6)])
    assert shade(picture, 10) == 1.0
    assert abs(shade(picture, 55) - (1 - DROPPED)) < 0.02
    assert picture.getpixel((75, 22))[0] > picture.getpixel((75, 22))[2]  # type: ignore[index]
    assert image.getpixel((55, 5)) == (200, 200, 200)


def test_a_pixel_under_any_kept_cell_is_lit() -> None:
    """A thumbnail cell over dropped tiles: the model still holds something of that place."""
    cells = np.vstack([HALVES, [[0, 0, 1, 1]]])
    image = Image.new("RGB", (100, 60), (200, 200, 200))
    picture = overlay(image, cells, np.array([False, False, True]), [])
    assert shade(picture, 10) == shade(picture, 90) == 1.0


def test_merged_cells_lie_between_and_the_crop_is_darkest() -> None:
    cells = np.array([[0, 0, 0.25, 1], [0.25, 0, 0.5, 1], [0.5, 0, 0.75, 1]])
    image = Image.new("RGB", (100, 60), (200, 200, 200))
    picture = overlay(image, cells, np.array([1, 0, 0]), [], lineage=np.array([1, 1, 0]))
    shades = [shade(picture, x) for x in (10, 35, 60, 90)]
    wanted = [1.0, 1 - MERGED, 1 - DROPPED, 1 - OUTSIDE]
    assert np.allclose(shades, wanted, atol=0.02)


def test_paths_join_neighbours_and_only_neighbours() -> None:
    cells = np.array([[0, 0, 0.25, 0.5], [0.25, 0, 0.5, 0.5], [0.75, 0, 1, 0.5], [0, 0.5, 0.25, 1]])
    everything = np.ones(4, dtype=bool)
    assert cell_path(cells, everything, 100, 100) == "M0 0H50V50H0ZM75 0H100V50H75ZM0 50H25V100H0Z"
    assert cell_path(cells, everything, 100, 100, join=False).count("M") == 4
    assert cell_path(cells, ~everything, 100, 100) == ""
