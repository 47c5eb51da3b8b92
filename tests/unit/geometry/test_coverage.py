"""Coverage of evidence, its areas and marks, and how legible it reaches the model."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from sightline.core.probe import Box
from sightline.geometry.cells import cropped_cells, grid_cells, tile_cells
from sightline.geometry.coverage import RegionGeometry, Sampling, region_areas
from sightline.geometry.marks import MARKS, UNTYPED, marks_of, overlay
from sightline.probes.regions import ROLES
from tests.refusals import Refused

QUARTERS = grid_cells(2, 2)
WHOLE = [0.0, 0.0, 1.0, 1.0]
WORD = [0.25, 0.5, 0.75, 0.55]
"""Half of the width, a twentieth of the height."""
PAGE = (400, 400)


def test_values_by_hand_and_half_covered_counts_as_half() -> None:
    """One region over the left half, one in the lower right; only the upper left quarter is kept."""
    plane = RegionGeometry(QUARTERS, [[0.0, 0.0, 0.5, 1.0], [0.75, 0.75, 1.0, 1.0]])
    found = plane.measure([0])
    assert plane.area == pytest.approx(0.5625)
    assert found.ecr == pytest.approx(0.25 / 0.5625)
    assert found.center_recall == 0.5  # (0.25, 0.5) lies on the border of the kept cell
    assert found.patch_recall == pytest.approx(1 / 3)
    assert found.geo_f1 == pytest.approx(2 * found.ecr / (1 + found.ecr))
    assert (found.lpp, found.worst_region, found.all_half, found.evidence_cells) == (1.0, 0.0, False, 3)
    for width in range(2, 30):
        plane = RegionGeometry(grid_cells(1, 2 * width), [WHOLE, [0.0, 0.1, 1.0, 0.7]])
        assert plane.measure(np.arange(width)).all_half
        assert not plane.measure(np.arange(width - 1)).all_half


def test_lineage_and_anchors_are_measured_apart() -> None:
    plane = RegionGeometry(QUARTERS, [[0.0, 0.0, 1.0, 0.5]])
    found = plane.measure([0, 1, 2, 3], anchors=[0])
    assert (found.ecr, found.anchor_ecr) == (1.0, 0.5)
    assert plane.measure([0]).anchor_ecr == plane.measure([0, 1], anchors=[-1, 0]).anchor_ecr == 0.5
    plane = RegionGeometry(QUARTERS, [[0.0, 0.0, 0.5, 0.5], [0.5, 0.0, 0.75, 0.25]])
    found = plane.measure([0, 1], anchors=[1])
    assert (found.lpp, found.anchor_lpp) == pytest.approx((0.3125 / 0.5, 0.0625 / 0.25))
    assert found.anchor_geo_f1 == pytest.approx(2 / (1 / found.anchor_ecr + 1 / found.anchor_lpp))
    alone = plane.measure([1])
    assert (found.anchor_ecr, found.anchor_lpp, found.anchor_geo_f1) == (alone.ecr, alone.lpp, alone.geo_f1)
    assert (alone.anchor_lpp, alone.anchor_geo_f1) == (alone.lpp, alone.geo_f1)
    assert plane.measure([0, 1], anchors=[3]).anchor_geo_f1 == 0.0


def test_everything_is_everything_and_overlapping_cells_count_once() -> None:
    for cells in (grid_cells(24, 24), grid_cells(27, 29), tile_cells((4, 3), 13, 8, 8)):
        plane = RegionGeometry(cells, [[0.1, 0.12, 0.3, 0.2], [0.62, 0.7, 0.9, 0.81], WHOLE])
        found = plane.measure(np.arange(len(cells)))
        assert (found.ecr, found.worst_region, found.center_recall, found.patch_recall) == (1.0, 1.0, 1.0, 1.0)
    # The left half, the right half, the whole image.
    plane = RegionGeometry(tile_cells((2, 1), 3, 1, 1), [[0.25, 0.0, 0.75, 1.0]])
    assert plane.measure([0]).ecr == 0.5
    both = plane.measure([0, 2])
    assert (both.ecr, both.lpp) == (1.0, 0.5)


def test_what_the_crop_cut_away_is_uncovered_and_not_read() -> None:
    cells = cropped_cells(4, 4, (672, 336), 336, (336, 336))
    outside = RegionGeometry(cells, [[0.0, 0.0, 0.2, 0.2]]).measure(np.arange(16))
    assert (outside.ecr, outside.center_recall, outside.evidence_cells) == (0.0, 0.0, 0)
    assert RegionGeometry(cells, [[0.15, 0.0, 0.35, 0.25]]).measure(np.arange(16)).ecr == pytest.approx(0.5)
    cells = cropped_cells(20, 20, (800, 400), 400, (400, 400))  # the middle half of the width
    plane = RegionGeometry(cells, [[0.0, 0.5, 0.5, 0.55]], sampling=Sampling((800, 400), 400))
    found = plane.measure(np.arange(len(cells)))
    assert plane.visible == found.visible == found.ecr == pytest.approx(0.5)
    assert found.legibility == pytest.approx(20.0 * 0.5**0.5)
    rng = np.random.default_rng(3)
    for size in ((1024, 683), (500, 751)):
        cells = cropped_cells(24, 24, size, 336, (336, 336))
        for _ in range(50):
            x, y = rng.uniform(0.0, 0.8, 2)
            plane = RegionGeometry(cells, [[x, y, x + 0.17, y + 0.03], [y, x, y + 0.1, x + 0.1]])
            assert plane.measure(np.arange(len(cells))).ecr == plane.visible


def test_nothing_to_cover_kept_or_asked_is_zero() -> None:
    for regions in ([], [[0.2, 0.2, 0.2, 0.5]], [[2.0, 2.0, 3.0, 3.0]]):
        found = RegionGeometry(QUARTERS, regions).measure(np.ones(4, dtype=bool))
        zeros = (found.ecr, found.lpp, found.geo_f1, found.patch_recall, found.worst_region)
        assert (*zeros, found.all_half) == (0.0, 0.0, 0.0, 0.0, 0.0, False), regions
    found = RegionGeometry(QUARTERS, [WHOLE]).measure([])
    assert (found.ecr, found.lpp, found.geo_f1, found.center_recall, found.evidence_cells) == (0.0, 0.0, 0.0, 0.0, 4)
    assert region_areas(raster(2, 2), []).tolist() == []
    assert RegionGeometry(grid_cells(4, 4), [WORD]).measure([0]).legibility is None
    assert RegionGeometry(grid_cells(4, 4), [], sampling=Sampling(PAGE, 4)).measure([0]).legibility is None


def test_indices_masks_and_tensors_agree_and_other_tokens_are_an_error(refused: Refused) -> None:
    plane = RegionGeometry(torch.from_numpy(grid_cells(6, 6)), torch.tensor([[0.1, 0.1, 0.6, 0.5]]))
    kept = [0, 7, 8, 20]
    mask = np.zeros(36, dtype=bool)
    mask[kept] = True
    assert plane.measure(kept) == plane.measure(mask) == plane.measure(torch.tensor(kept))
    plane = RegionGeometry(QUARTERS, [WHOLE])
    refused("token index 4 lies outside the 4 cells", plane.measure, [4])
    refused("mask of 5 tokens does not fit the 4 cells", plane.measure, np.ones(5, dtype=bool))
    plane = RegionGeometry(QUARTERS, [[0.6, 0.1, 0.9, 0.2], [0.5, 0.6, 0.7, 0.7]])
    assert plane.evidence.tolist() == [False, True, False, True]


def test_a_row_does_not_depend_on_the_batch_it_is_in() -> None:
    cells = tile_cells((4, 3), 13, 8, 8)
    masks = np.random.default_rng(0).random((70, len(cells))) < 0.4
    anchors = masks & (np.random.default_rng(1).random(masks.shape) < 0.5)
    plane = RegionGeometry(cells, [[0.03, 0.04, 0.9, 0.31], [0.2, 0.25, 0.4, 0.8], [0.5, 0.5, 0.77, 0.93]])
    together = plane.measure_many(masks, anchors)
    assert together == [plane.measure(mask, anchor) for mask, anchor in zip(masks, anchors, strict=True)]
    assert together[13:21] == plane.measure_many(masks[13:21], anchors[13:21])
    rng = np.random.default_rng(5)
    cells = tile_cells((3, 2), 7, 8, 8)
    plane = RegionGeometry(cells, [WORD, [0.1, 0.1, 0.4, 0.2]], sampling=Sampling((700, 500), 28 * 28))
    masks = rng.random((40, len(cells))) < 0.4
    shares = masks * rng.random(masks.shape)
    together = plane.measure_many(masks, shares=shares)
    assert [plane.measure(mask, shares=share) for mask, share in zip(masks, shares, strict=True)] == together


def test_published_shortcut_adds_overlapping_pieces_above_5000() -> None:
    cells = grid_cells(60, 60)
    kept = np.arange(0, 3600, 2)
    exact, summed = (RegionGeometry(cells, [WHOLE] * 2, union=union) for union in ("exact", "sum_above_5000"))
    assert exact.measure(kept).ecr == summed.measure(kept).ecr == pytest.approx(0.5)  # 3600 pieces
    most = np.delete(np.arange(3600), np.arange(0, 3600, 4))
    assert exact.measure(most).ecr == pytest.approx(0.75)
    assert summed.measure(most).ecr == 1.0  # 5400 pieces, each area counted for both regions
    assert summed.measure(most).lpp == exact.measure(most).lpp


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


@pytest.mark.parametrize("kind", CELLS)
@settings(max_examples=40)
@given(asked=st.lists(st.lists(box, min_size=1, max_size=3), min_size=1, max_size=12))
def test_areas_of_many_questions_at_once_are_to_the_bit_those_of_each_alone(
    kind: str, asked: list[list[tuple[float, ...]]]
) -> None:
    expected = [RegionGeometry(CELLS[kind], regions).area for regions in asked]
    assert region_areas(CELLS[kind], asked).tolist() == expected


# Legibility by hand: pixels of character height, times the root of how densely the region is sampled.


GRID, SAMPLED = grid_cells(20, 20), Sampling(PAGE, 20 * 20)
TILES = tile_cells((2, 2), 5, 10, 10)
"""Four tiles of 100 tokens, then the thumbnail."""
UPRIGHT, SMALL = [0.1, 0.1, 0.15, 0.6], [0.5, 0.5, 0.6, 0.52]


@pytest.mark.parametrize(
    ("cells", "sampling", "regions", "kept", "merged", "expected"),
    [
        *((grid_cells(side, side), SAMPLED, [WORD], None, 1, min(20.0, side)) for side in (40, 20, 10, 5)),
        (grid_cells(10, 10), Sampling((200, 200), 400), [WORD], None, 1, 10.0),
        (GRID, SAMPLED, [WORD], [0], 1, 0.0),
        (GRID, SAMPLED, [WORD], None, 2, 20.0 / 2**0.5),
        (GRID, SAMPLED, [WORD], None, 16, 5.0),
        (TILES, SAMPLED, [WORD], None, 1, 20.0),
        (TILES, SAMPLED, [WORD], range(400), 1, 20.0),
        (TILES, SAMPLED, [WORD], range(400, 500), 1, 10.0),
        (GRID, SAMPLED, [UPRIGHT], None, 1, 20.0),
        (GRID, SAMPLED, [UPRIGHT, SMALL], None, 1, 8.0),
    ],
)
def test_a_character_is_as_high_as_on_the_page_whoever_shrank_it_and_the_least_legible_region_decides(
    cells: np.ndarray, sampling: Sampling, regions: list[list[float]], kept: Any, merged: int, expected: float
) -> None:
    """Of tokens that an output mixes each counts its share; a thumbnail adds nothing to its tiles."""
    plane = RegionGeometry(cells, regions, sampling=sampling)
    tokens = np.arange(len(cells)) if kept is None else np.array(kept)
    shares = None if merged == 1 else np.full(len(cells), 1 / merged)
    assert plane.measure(tokens, shares=shares).legibility == pytest.approx(expected)


def test_deletion_leaves_the_root_of_what_is_covered() -> None:
    plane = RegionGeometry(GRID, [WORD], sampling=SAMPLED)
    found = plane.measure(np.flatnonzero(plane.evidence)[:3])
    assert 0.0 < found.ecr < 1.0
    assert found.legibility == pytest.approx(20.0 * found.ecr**0.5)


# Regions in a picture are told apart by what they are to the question, with and without colours.


SIDE_BY_SIDE: list[Box] = [(0.2, 0.4, 0.4, 0.5), (0.6, 0.4, 0.8, 0.5)]


def drawn(*roles: str, regions: list[Box] = SIDE_BY_SIDE) -> np.ndarray:
    image = Image.new("RGB", (320, 240), "white")
    return np.asarray(overlay(image, np.array([WHOLE]), np.array([True]), regions, roles=roles))


def test_every_role_has_a_letter_and_a_colour_and_regions_without_one_have_none() -> None:
    assert set(MARKS) == set(ROLES)
    assert len({mark.letter for mark in MARKS.values()}) == len(MARKS)
    assert len({mark.colour for mark in MARKS.values()}) == len(MARKS)
    assert marks_of((), 2) == [UNTYPED, UNTYPED]
    (mark,) = marks_of(("side_note",), 1)
    assert (mark.letter, mark.words) == ("S", "side note")


def test_roles_stand_above_their_regions_or_below_where_there_is_no_room() -> None:
    plain, typed = drawn(), drawn("answer_value", "field_label")
    above = np.s_[80:92, 60:90]
    assert (plain[above] == 255).all()
    assert (typed[above] != 255).any()
    assert (typed[96:120, 64:128] == plain[96:120, 64:128]).all(), "nothing covers the evidence itself"
    blue = (typed == (0x3B, 0x9E, 0xDE)).all(axis=2)
    assert blue[:, 180:270].any()
    assert not blue[:, :160].any()
    assert (drawn("context", regions=[(0.2, 0.0, 0.4, 0.1)])[28:40, 60:76] != 255).any()
