"""Cells of tokens: grids, tiles, stitched tiles, blocks read from cells, patches of a token."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch.nn.functional import interpolate
from transformers.image_processing_utils import get_patch_output_size, select_best_resolution
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.llava_next.modeling_llava_next import unpad_image

from sightline.geometry import cells as geometry
from sightline.geometry.cells import AxisReads, Canvas, crop_window, cropped_cells, grid_cells, tile_cells
from tests.refusals import Refused


def test_grids_are_row_major_and_crops_leave_the_margins_out() -> None:
    cells = grid_cells(2, 4)
    assert (cells[1].tolist(), cells[4].tolist()) == ([0.25, 0.0, 0.5, 0.5], [0.0, 0.5, 0.25, 1.0])
    assert np.prod(cells[:, 2:] - cells[:, :2], axis=1).sum() == pytest.approx(1.0)
    assert crop_window((500, 500), 336, (336, 336)).tolist() == [0.0, 0.0, 1.0, 1.0]
    np.testing.assert_array_equal(cropped_cells(24, 24, (500, 500), 336, (336, 336)), grid_cells(24, 24))
    cells = cropped_cells(24, 24, (672, 336), 336, (336, 336))
    assert (cells[:, 0].min(), cells[:, 2].max()) == (0.25, 0.75)
    assert (cells[:, 1].min(), cells[:, 3].max()) == (0.0, 1.0)
    placed = geometry.placed_in(grid_cells(1, 2), np.array([0.5, 0.25, 1.0, 0.75]))
    np.testing.assert_allclose(placed[1], [0.75, 0.25, 1.0, 0.75])


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


def test_canvases_follow_aspect_and_size() -> None:
    canvases = {(448, 448): (1, 1), (896, 448): (2, 1), (300, 1000): (1, 3), (640, 480): (4, 3), (4000, 4000): (3, 3)}
    assert {size: geometry.tiled_canvas(size, (448, 448), 1, 12) for size in canvases} == canvases


def test_tiles_cover_the_image_once_and_the_thumbnail_again() -> None:
    cells = tile_cells((3, 2), 7, 4, 4)
    assert cells.shape == (112, 4)
    areas = np.prod(cells[:, 2:] - cells[:, :2], axis=1)
    assert areas[:96].sum() == pytest.approx(1.0)
    np.testing.assert_array_equal(cells[96:], grid_cells(4, 4))  # the thumbnail
    np.testing.assert_allclose(cells[16], [1 / 3, 0.0, 5 / 12, 1 / 8])


def test_other_counts_than_those_of_a_canvas_are_an_error_or_laid_side_by_side(refused: Refused) -> None:
    refused("6 image patches do not fit a canvas of 2 x 2", tile_cells, (2, 2), 6, 4, 4)
    assert geometry.tile_arrangement((2, 2), 6, strict=False) == (6, 1, False)
    assert geometry.tile_arrangement((1, 1), 2, strict=False) == (2, 1, False)
    assert geometry.tile_arrangement((4, 3), 1) == (1, 1, False)


def test_tiles_whose_tokens_are_in_several_blocks_are_counted() -> None:
    tiles = np.repeat([0, 1], 4)
    assert geometry.split_tiles(((2, 2), (2, 2)), tiles) == 0
    assert geometry.split_tiles(((4, 2),), tiles) == 0, "stitched together"
    assert geometry.split_tiles(((1, 2), (1, 2), (2, 2)), tiles) == 1
    assert geometry.split_tiles(((1, 3), (1, 3), (1, 2)), tiles) == 2


# Stitched tiles by arithmetic, against what transformers does to tensors.

NEXT = [(336, 672), (672, 336), (672, 672), (1008, 336), (336, 1008)]
ONEVISION = [(384 * wide, 384 * high) for wide in range(1, 7) for high in range(1, 7)]
SIZES = st.tuples(st.integers(1, 3000), st.integers(1, 3000))


@settings(max_examples=200)
@given(SIZES, st.sampled_from([NEXT, ONEVISION]))
def test_the_canvas_is_that_of_the_processor(size: tuple[int, int], canvases: list[tuple[int, int]]) -> None:
    canvas = geometry.best_canvas(size, canvases)
    assert canvas == select_best_resolution(size[::-1], [each[::-1] for each in canvases])[::-1]
    picture = np.zeros((3, size[1], size[0]), dtype=np.bool_)
    assert geometry.fitted(size, canvas) == get_patch_output_size(picture, canvas[::-1], "channels_first")[::-1]


@settings(max_examples=200)
@given(SIZES, st.tuples(st.integers(1, 60), st.integers(1, 60)))
def test_what_is_left_without_padding_is_what_the_model_keeps(size: tuple[int, int], grid: tuple[int, int]) -> None:
    places = torch.arange(grid[0] * grid[1]).view(1, grid[1], grid[0])
    columns, rows = geometry.without_padding(size, grid)
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


def test_cells_of_a_canvas_leave_out_margins_and_padding() -> None:
    """Tiles of 60 pixels hold four patches of 14: four pixels of each are read by nobody."""
    canvas = Canvas((200, 100), (112, 56), 56, 14)
    columns, rows = canvas.kept()
    assert (columns, rows) == (range(8), range(4))
    np.testing.assert_allclose(canvas.cells(AxisReads.each(columns), AxisReads.each(rows)), grid_cells(4, 8))
    stitched = np.concatenate(list(np.arange(32).reshape(2, 4, 4)), axis=1)
    down, across = (places.flatten() for places in np.indices((4, 8)))
    tile, patch = canvas.patches(across, down)
    np.testing.assert_array_equal(tile * 16 + patch, stitched.flatten())
    canvas = Canvas((120, 60), (120, 60), 60, 14)
    cells = canvas.cells(AxisReads.each(range(8)), AxisReads.each(range(4)))
    np.testing.assert_allclose(cells[3], [42 / 120, 0, 56 / 120, 14 / 60])
    np.testing.assert_allclose(cells[4], [60 / 120, 0, 74 / 120, 14 / 60])
    canvas = Canvas((560, 85), (560, 112), 56, 14)
    columns, rows = canvas.kept()
    assert rows == range(1, 7)
    y = canvas.cells(AxisReads.each(columns), AxisReads.each(rows))[:: len(columns), 1::2]
    np.testing.assert_allclose(y, [[(14 * row - 13) / 85, (14 * row + 1) / 85] for row in range(1, 7)])
    cells = np.array([[-0.5, 0, 0, 1], [-0.1, 0, 0.4, 1.2], [1.0, 0, 1.5, 1], [0.4, 0.2, 1.5, 0.8]])
    inside = [[0, 0, 0, 0], [0, 0, 0.4, 1], [0.4, 1, 0.4, 1], [0.4, 0.2, 1, 0.8]]
    np.testing.assert_array_equal(geometry.within_image(cells), inside)


def padded(*seen: tuple[slice, slice]) -> list[np.ndarray]:
    """Grids of which only a part sees the image; the others see padding."""
    cells = grid_cells(8, 8).reshape(8, 8, 4)
    grids = [np.zeros_like(cells) for _ in seen]
    for grid, part in zip(grids, seen, strict=True):
        grid[part] = cells[part]
    return [grid.reshape(-1, 4) for grid in grids]


def padded_behind() -> np.ndarray:
    cells = grid_cells(4, 4)
    cells[3::4] = 0.75
    cells[12:] = 0.5
    return cells


def widened(side: int, by: float) -> np.ndarray:
    """Cells that reach over their neighbours; the first rows and columns begin at the border of the image."""
    return np.clip(grid_cells(side, side) + np.array([-by, -by, by, by]), 0, 1)


BELOW = tile_cells((1, 2), 3, 4, 4)
ROWS, COLUMNS, ALL_AROUND = padded(np.s_[2:6, :], np.s_[:, 3:5], np.s_[2:6, 1:7])
SHUFFLED = grid_cells(6, 6)[np.random.default_rng(0).permutation(36)]
STITCHED = np.array([[0, 0, 1, 1]] * 2 + [[2, 2, 3, 3]] * 2).flatten()


@pytest.mark.parametrize(
    ("cells", "tiles", "blocks"),
    [
        *(pytest.param(grid_cells(*shape), None, (shape,)) for shape in [(1, 1), (1, 5), (4, 1), (3, 4), (24, 24)]),
        pytest.param(np.clip(cropped_cells(6, 6, (640, 480), 336, (336, 336)), 0, 1), None, ((6, 6),), id="a crop"),
        pytest.param(tile_cells((3, 2), 7, 4, 5), None, ((4, 5),) * 7, id="tiles and thumbnail"),
        pytest.param(np.concatenate([grid_cells(4, 4), grid_cells(6, 9)]), None, ((4, 4), (6, 9)), id="base and grid"),
        pytest.param(BELOW, None, ((8, 4), (4, 4)), id="tiles below each other taken for one grid"),
        pytest.param(BELOW, np.repeat([0, 1, 2], 16), ((4, 4),) * 3, id="told apart by their number"),
        pytest.param(grid_cells(4, 4), STITCHED, ((4, 4),), id="stitched tiles are one block"),
        pytest.param(widened(5, 0.05), None, ((5, 5),), id="overlap"),
        pytest.param(widened(6, 0.2), None, ((6, 6),), id="far overlap"),
        pytest.param(padded_behind(), None, ((4, 4),), id="padding behind"),
        *(pytest.param(cells, None, ((8, 8),)) for cells in (ROWS, COLUMNS, ALL_AROUND)),
        pytest.param(np.zeros((16, 4)), None, ((1, 16),), id="padding alone is no arrangement"),
        pytest.param(SHUFFLED, None, ((1, 36),), id="disorder is none"),
    ],
)
def test_blocks_of_tokens_are_read_from_their_cells(
    cells: np.ndarray, tiles: np.ndarray | None, blocks: tuple[tuple[int, int], ...]
) -> None:
    assert geometry.token_blocks(cells, tiles) == blocks


def test_a_token_is_a_square_of_patches_and_windows_lie_one_behind_the_other() -> None:
    """3 x 5 tokens in windows of 2 x 2: their order, and thus the place of each."""
    assert geometry.merged_patches(2, 3, 2).tolist() == [
        [0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11], [12, 13, 18, 19], [14, 15, 20, 21], [16, 17, 22, 23]
    ]  # fmt: skip
    assert geometry.merged_patches(2, 3, 1).tolist() == [[0], [1], [2], [3], [4], [5]]
    order = [0, 1, 5, 6, 2, 3, 7, 8, 4, 9, 10, 11, 12, 13, 14]
    assert geometry.window_places(3, 5, 2)[order].tolist() == list(range(15))
    for side in (5, 8):
        assert np.array_equal(geometry.window_places(5, 4, side), np.arange(20))
