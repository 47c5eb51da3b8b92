from __future__ import annotations

import numpy as np
import pytest
from PIL import Image
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

from sightline.errors import SightlineError
from sightline.geometry.cells import (
    crop_window,
    cropped_cells,
    grid_cells,
    placed_in,
    tile_arrangement,
    tile_cells,
    tiled_canvas,
)


def test_grid_is_row_major_and_fills_the_image() -> None:
    cells = grid_cells(2, 4)
    assert cells[1].tolist() == [0.25, 0.0, 0.5, 0.5]
    assert cells[4].tolist() == [0.0, 0.5, 0.25, 1.0]
    assert np.prod(cells[:, 2:] - cells[:, :2], axis=1).sum() == pytest.approx(1.0)


def test_a_square_image_is_not_cropped() -> None:
    assert crop_window((500, 500), 336, (336, 336)).tolist() == [0.0, 0.0, 1.0, 1.0]
    np.testing.assert_array_equal(cropped_cells(24, 24, (500, 500), 336, (336, 336)), grid_cells(24, 24))


@pytest.mark.parametrize("size", [(640, 480), (480, 640), (1024, 333), (201, 1000), (337, 336), (100, 99)])
def test_the_window_is_what_the_processor_lets_through(size: tuple[int, int]) -> None:
    """A ramp from 0 to 1 along each axis comes out of the processor with the window's ends at its borders."""
    width, height = size
    ramp = np.zeros((height, width, 3), dtype=np.float32)
    ramp[..., 0] = (np.arange(width) + 0.5) / width
    ramp[..., 1] = ((np.arange(height) + 0.5) / height)[:, None]
    image = Image.fromarray(np.round(ramp * 255).astype(np.uint8))
    processor = CLIPImageProcessorPil(
        size={"shortest_edge": 336}, crop_size={"height": 336, "width": 336}, do_normalize=False, do_rescale=False
    )
    pixels = np.asarray(processor(image, return_tensors="np")["pixel_values"][0], dtype=np.float64) / 255.0
    x1, y1, x2, y2 = crop_window(size, 336, (336, 336))
    middle = slice(100, 236)
    for seen, low, high in ((pixels[0].mean(axis=0), x1, x2), (pixels[1].mean(axis=1), y1, y2)):
        expected = low + (np.arange(336) + 0.5) / 336 * (high - low)
        np.testing.assert_allclose(seen[middle], expected[middle], atol=0.004)


def test_cropped_cells_leave_the_margins_out() -> None:
    cells = cropped_cells(24, 24, (672, 336), 336, (336, 336))
    assert cells[:, 0].min() == 0.25
    assert cells[:, 2].max() == 0.75
    assert (cells[:, 1].min(), cells[:, 3].max()) == (0.0, 1.0)


def test_a_window_scales_and_moves() -> None:
    np.testing.assert_allclose(
        placed_in(grid_cells(1, 2), np.array([0.5, 0.25, 1.0, 0.75]))[1], [0.75, 0.25, 1.0, 0.75]
    )


@pytest.mark.parametrize(
    ("size", "canvas"),
    [((448, 448), (1, 1)), ((896, 448), (2, 1)), ((300, 1000), (1, 3)), ((640, 480), (4, 3)), ((4000, 4000), (3, 3))],
)
def test_canvas_follows_aspect_and_size(size: tuple[int, int], canvas: tuple[int, int]) -> None:
    assert tiled_canvas(size, (448, 448), 1, 12) == canvas


def test_tiles_cover_the_image_once_and_the_thumbnail_again() -> None:
    cells = tile_cells((3, 2), 7, 4, 4)
    assert cells.shape == (112, 4)
    areas = np.prod(cells[:, 2:] - cells[:, :2], axis=1)
    assert areas[:96].sum() == pytest.approx(1.0)
    np.testing.assert_array_equal(cells[96:], grid_cells(4, 4))
    np.testing.assert_allclose(cells[16], [1 / 3, 0.0, 5 / 12, 1 / 8])


def test_a_patch_count_that_fits_no_canvas_is_an_error() -> None:
    with pytest.raises(SightlineError, match="6 image patches do not fit a canvas of 2 x 2"):
        tile_cells((2, 2), 6, 4, 4)
    assert tile_arrangement((2, 2), 6, strict=False) == (6, 1, False)
    assert tile_arrangement((1, 1), 2, strict=False) == (2, 1, False)
    assert tile_arrangement((4, 3), 1) == (1, 1, False)
