"""Methods that split their budget over a base picture and its tiles."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from sightline.core.selection import Layout, TokenView
from sightline.selectors.globalcom2 import GlobalCom2, seen_from_above, tile_shares
from sightline.selectors.hired import HiRED, tile_budgets
from sightline.selectors.spreading import tiles_of
from tests.unit.selectors.views import view


def cells_of(rows: int, columns: int, box: tuple[float, float, float, float] = (0.0, 0.0, 1.0, 1.0)) -> torch.Tensor:
    """(rows * columns, 4) float64: equal cells of a box."""
    y, x = (
        part.flatten().double() for part in torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
    )
    wide, high = (box[2] - box[0]) / columns, (box[3] - box[1]) / rows
    left, upper = box[0] + x * wide, box[1] + y * high
    return torch.stack([left, upper, left + wide, upper + high], dim=1)


def stitched(rows: int, columns: int, side: int = 4) -> tuple[Layout, torch.Tensor]:
    """A base picture and a grid of what is left of its tiles, as LLaVA-NeXT has them."""
    return ((side, side), (rows, columns)), torch.cat([cells_of(side, side), cells_of(rows, columns)])


def test_one_block_has_no_tiles() -> None:
    tile, grid = tiles_of(((3, 4),), cells_of(3, 4))
    assert grid is None
    assert tile.tolist() == [-1] * 12


def test_a_stitched_grid_is_cut_into_tiles_as_large_as_the_base_picture() -> None:
    """Six of eight rows are left, one cropped at each end, so each tile has three of them."""
    tile, grid = tiles_of(*stitched(6, 8))
    assert grid == (2, 2)
    assert tile[:16].tolist() == [-1] * 16
    assert tile[16:].view(6, 8).tolist() == [[0] * 4 + [1] * 4] * 3 + [[2] * 4 + [3] * 4] * 3


def test_the_picture_that_spans_the_image_is_the_base_wherever_it_stands() -> None:
    left, right = cells_of(2, 2, (0.0, 0.0, 0.5, 1.0)), cells_of(2, 2, (0.5, 0.0, 1.0, 1.0))
    tile, grid = tiles_of(((2, 2),) * 3, torch.cat([left, right, cells_of(2, 2)]))
    assert grid == (1, 2)
    assert tile.tolist() == [0] * 4 + [1] * 4 + [-1] * 4


def test_a_tile_keeps_by_its_part_in_what_the_picture_looks_at() -> None:
    """All that the picture looks at lies on its left; of strips, half the rows each, every one has half of it."""
    looked = torch.zeros(4, 4)
    looked[:, :2] = 1.0
    assert tile_budgets(looked.flatten(), (4, 4), (1, 2), 12, 0.5).tolist() == [12, 0]
    assert tile_budgets(looked.flatten(), (16, 1), (2, 1), 12, 0.5).tolist() == [6, 6]


def test_the_interpolated_picture_is_itself_at_its_own_cells() -> None:
    picture = torch.arange(12.0).view(3, 4)
    torch.testing.assert_close(seen_from_above(picture, cells_of(3, 4)), picture.flatten())
    doubled = torch.nn.functional.interpolate(picture[None, None], (6, 8), mode="bilinear").flatten()
    torch.testing.assert_close(seen_from_above(picture, cells_of(6, 8)), doubled)


def test_shares_are_equal_where_the_picture_is_and_never_above_one() -> None:
    assert tile_shares(torch.ones(4, 4), (2, 2), 0.3, 10.0).tolist() == pytest.approx([0.3] * 4)
    steep = torch.zeros(4, 4)
    steep[:2, :2] = 1000.0
    assert tile_shares(steep, (2, 2), 0.8, 10.0).tolist() == pytest.approx([1.0, 0.6, 0.6, 0.6])


def tiled(seed: int) -> TokenView:
    layout, cells = stitched(6, 8)
    source = torch.Generator().manual_seed(seed)
    names = ("vision.cls_attention@0", "vision.cls_attention@-1", "vision.cls_attention@-2")
    signals = {name: torch.randn(2, len(cells), generator=source).softmax(dim=1) for name in names}
    return replace(view(torch.zeros(len(cells), 1), signals=signals), cells=cells, layout=layout)


@pytest.mark.parametrize("selector", [HiRED(), HiRED(alpha=1.0), HiRED(regions="tiles"), GlobalCom2()], ids=str)
def test_any_budget_is_met_on_tiles(selector: HiRED | GlobalCom2) -> None:
    for seed in range(3):
        for k in range(1, 65):
            kept = selector.select(tiled(seed), k).anchors.tolist()
            assert len(kept) == len(set(kept)) == k
            assert kept == sorted(kept)


def test_the_base_picture_has_its_share() -> None:
    kept = HiRED(alpha=0.5).select(tiled(0), 20).anchors
    assert int((kept < 16).sum()) == 10
    everything = HiRED(alpha=1.0).select(tiled(0), 30).anchors
    assert int((everything < 16).sum()) == 16, "what it cannot take goes to the tiles"
