"""Legibility by hand: pixels of character height, times the root of how densely the region is sampled."""

from __future__ import annotations

import numpy as np
import pytest

from sightline.geometry.cells import cropped_cells, grid_cells, tile_cells
from sightline.geometry.coverage import RegionGeometry, Sampling

WORD = [0.25, 0.5, 0.75, 0.55]
"""Half of the width, a twentieth of the height."""
PAGE = (400, 400)


def legibility(
    cells: np.ndarray, sampling: Sampling, kept: np.ndarray | None = None, shares: np.ndarray | None = None
) -> float:
    plane = RegionGeometry(cells, [WORD], sampling=sampling)
    found = plane.measure(np.arange(len(cells)) if kept is None else kept, shares=shares).legibility
    assert found is not None
    return found


def test_a_page_read_pixel_by_pixel_has_its_own_character_height() -> None:
    assert legibility(grid_cells(20, 20), Sampling(PAGE, 20 * 20)) == pytest.approx(20.0)


def test_a_shrunken_page_covers_everything_and_loses_its_scale() -> None:
    for side in (10, 5):
        plane = RegionGeometry(grid_cells(side, side), [WORD], sampling=Sampling(PAGE, 20 * 20))
        found = plane.measure(np.arange(side * side))
        assert found.ecr == 1.0
        assert found.legibility == pytest.approx(20.0 * side / 20)


def test_an_enlarged_page_gains_nothing() -> None:
    assert legibility(grid_cells(40, 40), Sampling(PAGE, 20 * 20)) == pytest.approx(20.0)


def test_shrinking_before_or_in_the_processor_is_the_same() -> None:
    """The size is that of the image handed over; whoever shrank it, as many samples fall on a character."""
    cells = grid_cells(10, 10)
    assert legibility(cells, Sampling(PAGE, 400)) == pytest.approx(legibility(cells, Sampling((200, 200), 400)))


def test_deletion_leaves_the_root_of_what_is_covered() -> None:
    cells = grid_cells(20, 20)
    plane = RegionGeometry(cells, [WORD], sampling=Sampling(PAGE, 400))
    kept = np.flatnonzero(plane.evidence)[:3]
    found = plane.measure(kept)
    assert 0.0 < found.ecr < 1.0
    assert found.legibility == pytest.approx(20.0 * found.ecr**0.5)
    assert plane.measure([0]).legibility == 0.0


def test_merging_loses_more_the_more_is_merged() -> None:
    cells = grid_cells(20, 20)
    everything = np.ones(len(cells), dtype=bool)
    alone, pairs, sixteen = (
        legibility(cells, Sampling(PAGE, 400), everything, np.full(len(cells), 1 / m)) for m in (1, 2, 16)
    )
    assert (alone, pairs, sixteen) == pytest.approx((20.0, 20.0 / 2**0.5, 5.0))


def test_a_thumbnail_adds_nothing_to_a_tile_and_stands_in_for_a_missing_one() -> None:
    cells = tile_cells((2, 2), 5, 10, 10)  # four tiles of 100 tokens, then the thumbnail
    sampling = Sampling(PAGE, 20 * 20)
    tiles, thumbnail = np.arange(400), np.arange(400, 500)
    assert legibility(cells, sampling) == legibility(cells, sampling, tiles) == pytest.approx(20.0)
    assert legibility(cells, sampling, thumbnail) == pytest.approx(10.0)


def test_what_the_crop_cut_away_is_not_read() -> None:
    cells = cropped_cells(20, 20, (800, 400), 400, (400, 400))  # the middle half of the width
    plane = RegionGeometry(cells, [[0.0, 0.5, 0.5, 0.55]], sampling=Sampling((800, 400), 400))
    found = plane.measure(np.arange(len(cells)))
    assert plane.visible == found.visible == found.ecr == pytest.approx(0.5)
    assert found.legibility == pytest.approx(20.0 * 0.5**0.5)


def test_visible_is_what_full_covers_to_the_last_bit() -> None:
    rng = np.random.default_rng(3)
    for size in ((1024, 683), (500, 751)):
        cells = cropped_cells(24, 24, size, 336, (336, 336))
        for _ in range(50):
            x, y = rng.uniform(0.0, 0.8, 2)
            plane = RegionGeometry(cells, [[x, y, x + 0.17, y + 0.03], [y, x, y + 0.1, x + 0.1]])
            assert plane.measure(np.arange(len(cells))).ecr == plane.visible


def test_the_least_legible_region_decides_and_text_set_vertically_has_its_shorter_side() -> None:
    sampling = Sampling(PAGE, 400)
    upright, small = [0.1, 0.1, 0.15, 0.6], [0.5, 0.5, 0.6, 0.52]
    cells = grid_cells(20, 20)
    everything = np.arange(len(cells))
    assert RegionGeometry(cells, [upright], sampling=sampling).measure(everything).legibility == pytest.approx(20.0)
    both = RegionGeometry(cells, [upright, small], sampling=sampling)
    assert both.measure(everything).legibility == pytest.approx(8.0)


def test_nothing_is_said_where_the_sampling_is_unknown() -> None:
    plane = RegionGeometry(grid_cells(4, 4), [WORD])
    assert plane.measure([0]).legibility is None
    assert RegionGeometry(grid_cells(4, 4), [], sampling=Sampling(PAGE, 4)).measure([0]).legibility is None


def test_a_mask_gets_the_same_number_alone_and_in_a_batch() -> None:
    rng = np.random.default_rng(5)
    cells = tile_cells((3, 2), 7, 8, 8)
    plane = RegionGeometry(cells, [WORD, [0.1, 0.1, 0.4, 0.2]], sampling=Sampling((700, 500), 28 * 28))
    masks = rng.random((40, len(cells))) < 0.4
    shares = masks * rng.random(masks.shape)
    together = plane.measure_many(masks, shares=shares)
    assert [plane.measure(mask, shares=share) for mask, share in zip(masks, shares, strict=True)] == together
