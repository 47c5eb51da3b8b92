"""Stitched tiles by arithmetic, against what transformers does to tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import interpolate
from transformers.image_processing_utils import get_patch_output_size, select_best_resolution
from transformers.models.llava_next.modeling_llava_next import unpad_image

from sightline.geometry.cells import AxisReads, Canvas, best_canvas, fitted, grid_cells, within_image, without_padding

NEXT = [(336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008)]
ONEVISION = [(384 * wide, 384 * high) for wide in range(1, 7) for high in range(1, 7)]
SIZES = st.tuples(st.integers(1, 3000), st.integers(1, 3000))


@settings(max_examples=200, deadline=None)
@given(size=SIZES, canvases=st.sampled_from([NEXT, ONEVISION]))
def test_the_canvas_and_the_size_on_it_are_those_of_the_processor(
    size: tuple[int, int], canvases: list[tuple[int, int]]
) -> None:
    canvas = best_canvas(size, canvases)
    assert canvas == select_best_resolution(size[::-1], [each[::-1] for each in canvases])[::-1]
    picture = np.zeros((3, size[1], size[0]), dtype=np.bool_)
    assert fitted(size, canvas) == get_patch_output_size(picture, canvas[::-1], "channels_first")[::-1]


@settings(max_examples=200, deadline=None)
@given(size=SIZES, grid=st.tuples(st.integers(1, 60), st.integers(1, 60)))
def test_what_is_left_without_padding_is_what_the_model_keeps(size: tuple[int, int], grid: tuple[int, int]) -> None:
    places = torch.arange(grid[0] * grid[1]).view(1, grid[1], grid[0])
    columns, rows = without_padding(size, grid)
    assert torch.equal(unpad_image(places, size[::-1]), places[:, rows.start : rows.stop, columns.start : columns.stop])


@pytest.mark.parametrize(("inputs", "outputs"), [(8, 5), (8, 4), (9, 3), (81, 74), (12, 11), (7, 7), (3, 1)])
def test_a_shrunken_axis_reads_as_interpolation_weighs(inputs: int, outputs: int) -> None:
    reading = AxisReads.shrunken(range(2, 2 + inputs), outputs)
    mixed = torch.zeros(outputs, inputs, dtype=torch.float64)
    for i in range(outputs):
        mixed[i, reading.first[i] - 2] += 1 - reading.share[i]
        mixed[i, reading.second[i] - 2] += reading.share[i]
    square = torch.eye(inputs, dtype=torch.float64)[:, None, :, None].expand(-1, -1, -1, 2)
    theirs = interpolate(square, size=(outputs, 2), mode="bilinear")[:, 0, :, 0].T
    torch.testing.assert_close(mixed, theirs)
    assert ((reading.second == reading.first) == (reading.share == 0)).all()


def test_cells_of_an_image_that_fills_its_canvas_are_a_plain_grid() -> None:
    canvas = Canvas((200, 100), (112, 56), 56, 14)
    columns, rows = canvas.kept()
    assert (columns, rows) == (range(8), range(4))
    np.testing.assert_allclose(canvas.cells(AxisReads.each(columns), AxisReads.each(rows)), grid_cells(4, 8))


def test_margins_that_patches_leave_in_a_tile_lie_in_no_cell() -> None:
    """Tiles of 60 pixels hold four patches of 14: four pixels of each are read by nobody."""
    canvas = Canvas((120, 60), (120, 60), 60, 14)
    cells = canvas.cells(AxisReads.each(range(8)), AxisReads.each(range(4)))
    np.testing.assert_allclose(cells[3], [42 / 120, 0, 56 / 120, 14 / 60])
    np.testing.assert_allclose(cells[4], [60 / 120, 0, 74 / 120, 14 / 60])


def test_padding_is_outside_of_the_image_and_an_odd_pixel_of_it_lies_behind() -> None:
    canvas = Canvas((560, 85), (560, 112), 56, 14)
    columns, rows = canvas.kept()
    assert rows == range(1, 7)
    y = canvas.cells(AxisReads.each(columns), AxisReads.each(rows))[:: len(columns), 1::2]
    np.testing.assert_allclose(y, [[(14 * row - 13) / 85, (14 * row + 1) / 85] for row in range(1, 7)])


def test_places_of_the_stitched_grid_are_patches_of_tiles() -> None:
    canvas = Canvas((200, 100), (112, 56), 56, 14)
    tiles = np.arange(32).reshape(2, 4, 4)
    stitched = np.concatenate(list(tiles), axis=1)
    down, across = (places.flatten() for places in np.indices((4, 8)))
    tile, patch = canvas.patches(across, down)
    np.testing.assert_array_equal(tile * 16 + patch, stitched.flatten())


def test_cells_that_see_padding_alone_are_empty_beside_the_cell_before_them() -> None:
    cells = np.array([[-0.5, 0, 0, 1], [-0.1, 0, 0.4, 1.2], [1.0, 0, 1.5, 1], [0.4, 0.2, 1.5, 0.8]])
    np.testing.assert_array_equal(
        within_image(cells), [[0, 0, 0, 0], [0, 0, 0.4, 1], [0.4, 1, 0.4, 1], [0.4, 0.2, 1, 0.8]]
    )
