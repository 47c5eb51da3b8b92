from __future__ import annotations

import numpy as np
import pytest
import torch

from sightline.errors import SightlineError
from sightline.geometry.cells import cropped_cells, grid_cells, tile_cells
from sightline.geometry.coverage import RegionGeometry

QUARTERS = grid_cells(2, 2)


def test_values_by_hand() -> None:
    """One region over the left half, one in the lower right; only the upper left quarter is kept."""
    plane = RegionGeometry(QUARTERS, [[0.0, 0.0, 0.5, 1.0], [0.75, 0.75, 1.0, 1.0]])
    found = plane.measure([0])
    assert plane.area == pytest.approx(0.5625)
    assert found.ecr == pytest.approx(0.25 / 0.5625)
    assert found.center_recall == 0.5  # (0.25, 0.5) lies on the border of the kept cell
    assert found.patch_recall == pytest.approx(1 / 3)
    assert found.lpp == 1.0
    assert found.geo_f1 == pytest.approx(2 * found.ecr / (1 + found.ecr))
    assert found.worst_region == 0.0
    assert not found.all_half
    assert found.evidence_cells == 3


def test_lineage_and_anchors_are_measured_apart() -> None:
    plane = RegionGeometry(QUARTERS, [[0.0, 0.0, 1.0, 0.5]])
    found = plane.measure([0, 1, 2, 3], anchors=[0])
    assert (found.ecr, found.anchor_ecr) == (1.0, 0.5)
    assert plane.measure([0]).anchor_ecr == 0.5
    assert plane.measure([0, 1], anchors=[-1, 0]).anchor_ecr == 0.5


def test_precision_of_a_merge_is_that_of_its_anchors_too() -> None:
    plane = RegionGeometry(QUARTERS, [[0.0, 0.0, 0.5, 0.5], [0.5, 0.0, 0.75, 0.25]])
    found = plane.measure([0, 1], anchors=[1])
    assert (found.lpp, found.anchor_lpp) == pytest.approx((0.3125 / 0.5, 0.0625 / 0.25))
    assert found.anchor_geo_f1 == pytest.approx(2 / (1 / found.anchor_ecr + 1 / found.anchor_lpp))
    alone = plane.measure([1])
    assert (found.anchor_ecr, found.anchor_lpp, found.anchor_geo_f1) == (alone.ecr, alone.lpp, alone.geo_f1)
    assert (alone.anchor_lpp, alone.anchor_geo_f1) == (alone.lpp, alone.geo_f1)
    assert plane.measure([0, 1], anchors=[3]).anchor_geo_f1 == 0.0


def test_half_covered_counts_as_half() -> None:
    for width in range(2, 30):
        cells = grid_cells(1, 2 * width)
        plane = RegionGeometry(cells, [[0.0, 0.0, 1.0, 1.0], [0.0, 0.1, 1.0, 0.7]])
        assert plane.measure(np.arange(width)).all_half
        assert not plane.measure(np.arange(width - 1)).all_half


def test_everything_kept_is_exactly_everything() -> None:
    for cells in (grid_cells(24, 24), grid_cells(27, 29), tile_cells((4, 3), 13, 8, 8)):
        plane = RegionGeometry(cells, [[0.1, 0.12, 0.3, 0.2], [0.62, 0.7, 0.9, 0.81], [0.0, 0.0, 1.0, 1.0]])
        found = plane.measure(np.arange(len(cells)))
        assert (found.ecr, found.worst_region, found.center_recall, found.patch_recall) == (1.0, 1.0, 1.0, 1.0)


def test_overlapping_cells_are_not_counted_twice() -> None:
    cells = tile_cells((2, 1), 3, 1, 1)  # left half, right half, whole image
    plane = RegionGeometry(cells, [[0.25, 0.0, 0.75, 1.0]])
    assert plane.measure([0]).ecr == 0.5
    assert plane.measure([0, 2]).ecr == 1.0
    assert plane.measure([0, 2]).lpp == 0.5


def test_what_the_crop_cut_away_is_uncovered() -> None:
    cells = cropped_cells(4, 4, (672, 336), 336, (336, 336))
    outside = RegionGeometry(cells, [[0.0, 0.0, 0.2, 0.2]]).measure(np.arange(16))
    assert (outside.ecr, outside.center_recall, outside.evidence_cells) == (0.0, 0.0, 0)
    partly = RegionGeometry(cells, [[0.15, 0.0, 0.35, 0.25]]).measure(np.arange(16))
    assert partly.ecr == pytest.approx(0.5)


@pytest.mark.parametrize("regions", [[], [[0.2, 0.2, 0.2, 0.5]], [[2.0, 2.0, 3.0, 3.0]]])
def test_nothing_to_cover_is_zero(regions: list[list[float]]) -> None:
    found = RegionGeometry(QUARTERS, regions).measure(np.ones(4, dtype=bool))
    assert (found.ecr, found.lpp, found.geo_f1, found.patch_recall, found.worst_region) == (0.0, 0.0, 0.0, 0.0, 0.0)
    assert not found.all_half


def test_nothing_kept_is_zero() -> None:
    found = RegionGeometry(QUARTERS, [[0.0, 0.0, 1.0, 1.0]]).measure([])
    assert (found.ecr, found.lpp, found.geo_f1, found.center_recall) == (0.0, 0.0, 0.0, 0.0)
    assert found.evidence_cells == 4


def test_indices_masks_and_tensors_agree() -> None:
    plane = RegionGeometry(torch.from_numpy(grid_cells(6, 6)), torch.tensor([[0.1, 0.1, 0.6, 0.5]]))
    kept = [0, 7, 8, 20]
    mask = np.zeros(36, dtype=bool)
    mask[kept] = True
    assert plane.measure(kept) == plane.measure(mask) == plane.measure(torch.tensor(kept))


def test_a_row_does_not_depend_on_the_batch_it_is_in() -> None:
    cells = tile_cells((4, 3), 13, 8, 8)
    regions = [[0.03, 0.04, 0.9, 0.31], [0.2, 0.25, 0.4, 0.8], [0.5, 0.5, 0.77, 0.93]]
    masks = np.random.default_rng(0).random((70, len(cells))) < 0.4
    anchors = masks & (np.random.default_rng(1).random(masks.shape) < 0.5)
    plane = RegionGeometry(cells, regions)
    together = plane.measure_many(masks, anchors)
    assert together == [plane.measure(mask, anchor) for mask, anchor in zip(masks, anchors, strict=True)]
    assert together[13:21] == plane.measure_many(masks[13:21], anchors[13:21])


def test_published_shortcut_adds_overlapping_pieces_above_5000() -> None:
    cells = grid_cells(60, 60)
    regions = [[0.0, 0.0, 1.0, 1.0]] * 2
    kept = np.arange(0, 3600, 2)
    exact, summed = (RegionGeometry(cells, regions, union=union) for union in ("exact", "sum_above_5000"))
    assert exact.measure(kept).ecr == summed.measure(kept).ecr == pytest.approx(0.5)  # 3600 pieces
    most = np.delete(np.arange(3600), np.arange(0, 3600, 4))
    assert exact.measure(most).ecr == pytest.approx(0.75)
    assert summed.measure(most).ecr == 1.0  # 5400 pieces, each area counted for both regions
    assert summed.measure(most).lpp == exact.measure(most).lpp


def test_evidence_is_open_to_interventions() -> None:
    plane = RegionGeometry(QUARTERS, [[0.6, 0.1, 0.9, 0.2], [0.5, 0.6, 0.7, 0.7]])
    assert plane.evidence.tolist() == [False, True, False, True]


def test_a_token_that_does_not_exist_is_an_error() -> None:
    plane = RegionGeometry(QUARTERS, [[0.0, 0.0, 1.0, 1.0]])
    with pytest.raises(SightlineError, match="token index 4 lies outside the 4 cells"):
        plane.measure([4])
    with pytest.raises(SightlineError, match="mask of 5 tokens does not fit the 4 cells"):
        plane.measure(np.ones(5, dtype=bool))
