from __future__ import annotations

import numpy as np
import pytest

from sightline.geometry.cells import cropped_cells, grid_cells, split_tiles, tile_cells, token_blocks


@pytest.mark.parametrize("shape", [(1, 1), (1, 5), (4, 1), (3, 4), (24, 24)])
def test_a_grid_is_one_block(shape: tuple[int, int]) -> None:
    assert token_blocks(grid_cells(*shape)) == (shape,)


def test_a_crop_that_reaches_beyond_the_image_is_one_block() -> None:
    cells = cropped_cells(6, 6, (640, 480), 336, (336, 336))
    assert token_blocks(np.clip(cells, 0, 1)) == ((6, 6),)


def test_tiles_and_their_thumbnail_are_blocks_of_their_own() -> None:
    assert token_blocks(tile_cells((3, 2), 7, 4, 5)) == ((4, 5),) * 7


def test_a_base_image_and_a_stitched_grid_are_two_blocks() -> None:
    assert token_blocks(np.concatenate([grid_cells(4, 4), grid_cells(6, 9)])) == ((4, 4), (6, 9))


def test_tiles_below_each_other_are_told_from_one_tall_grid_by_their_number() -> None:
    cells = tile_cells((1, 2), 3, 4, 4)
    assert token_blocks(cells) == ((8, 4), (4, 4))
    assert token_blocks(cells, np.repeat([0, 1, 2], 16)) == ((4, 4),) * 3


def test_a_stitched_grid_of_several_tiles_stays_one_block() -> None:
    tiles = np.array([[0, 0, 1, 1]] * 2 + [[2, 2, 3, 3]] * 2).flatten()
    assert token_blocks(grid_cells(4, 4), tiles) == ((4, 4),)


def test_cells_that_overlap_are_a_block_all_the_same() -> None:
    cells = grid_cells(5, 5) + np.array([-0.05, -0.05, 0.05, 0.05])
    assert token_blocks(np.clip(cells, 0, 1)) == ((5, 5),)


def test_padding_to_the_right_and_below_fits_in() -> None:
    cells = grid_cells(4, 4)
    cells[3::4] = 0.75
    cells[12:] = 0.5
    assert token_blocks(cells) == ((4, 4),)


@pytest.mark.parametrize("seen", [np.s_[2:6, :], np.s_[:, 3:5], np.s_[2:6, 1:7]])
def test_padding_all_around_fits_in(seen: tuple[slice, slice]) -> None:
    cells = grid_cells(8, 8).reshape(8, 8, 4)
    padded = np.zeros_like(cells)
    padded[seen] = cells[seen]
    assert token_blocks(padded.reshape(-1, 4)) == ((8, 8),)


def test_padding_alone_is_no_arrangement() -> None:
    assert token_blocks(np.zeros((16, 4))) == ((1, 16),)


def test_cells_that_reach_far_over_their_neighbours_are_a_block() -> None:
    """Wide filters: the first rows and columns all begin at the border of the image."""
    cells = grid_cells(6, 6) + np.array([-0.2, -0.2, 0.2, 0.2])
    assert token_blocks(np.clip(cells, 0, 1)) == ((6, 6),)


def test_cells_in_disorder_are_no_arrangement() -> None:
    shuffled = np.random.default_rng(0).permutation(36)
    assert token_blocks(grid_cells(6, 6)[shuffled]) == ((1, 36),)


def test_a_tile_whose_tokens_lie_in_several_blocks_is_counted() -> None:
    tiles = np.repeat([0, 1], 4)
    assert split_tiles(((2, 2), (2, 2)), tiles) == 0
    assert split_tiles(((4, 2),), tiles) == 0, "stitched together"
    assert split_tiles(((1, 2), (1, 2), (2, 2)), tiles) == 1
    assert split_tiles(((1, 3), (1, 3), (1, 2)), tiles) == 2
