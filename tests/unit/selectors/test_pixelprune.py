from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from sightline.backbones.signals import pixels_of_tokens
from sightline.errors import SightlineError
from sightline.selectors.pixelprune import PixelPrune, prediction_errors
from tests.unit.selectors.contract import check_contract, scene


def kept_by_rule(pixels: np.ndarray, tolerance: float) -> list[int]:
    """The published rule in its plain form: walk over the grid, predict, keep what the prediction misses."""
    rows, columns, _ = pixels.shape

    def alike(u: np.ndarray, v: np.ndarray) -> bool:
        return bool(np.abs(u - v).max() <= tolerance)

    kept = [0]
    for r in range(rows):
        for c in range(columns):
            if r == c == 0:
                continue
            guess = pixels[r, c - 1] if c else pixels[r - 1, c]
            if r and c:
                beside, above, corner = pixels[r, c - 1], pixels[r - 1, c], pixels[r - 1, c - 1]
                guess = above if alike(corner, beside) and not alike(corner, above) else beside
            if not alike(pixels[r, c], guess):
                kept.append(r * columns + c)
    return kept


def page(seed: int, rows: int = 9, columns: int = 11) -> np.ndarray:
    """A page of one colour with rectangles of others, (rows, columns, 6)."""
    drawn = np.random.default_rng(seed)
    sheet = np.zeros((rows, columns, 6), dtype=np.float32)
    for colour in range(1, 4):
        top, left = int(drawn.integers(rows - 2)), int(drawn.integers(columns - 2))
        sheet[top : top + int(drawn.integers(1, 5)), left : left + int(drawn.integers(1, 6))] = colour
    return sheet


def test_contract() -> None:
    check_contract(PixelPrune())


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tolerance", [0.0, 1.0])
def test_at_its_own_count_the_choice_is_the_published_rule(seed: int, tolerance: float) -> None:
    sheet = page(seed)
    rows, columns, _ = sheet.shape
    view = scene(0, rows, columns)
    view = replace(view, signals={"image.pixels": torch.from_numpy(sheet).flatten(0, 1)})
    expected = kept_by_rule(sheet, tolerance)
    assert 1 < len(expected) < rows * columns
    assert PixelPrune(tolerance).select(view, len(expected)).anchors.tolist() == expected


def test_a_rectangle_costs_its_corners_where_edges_are_seen() -> None:
    """A dark rectangle on paper, worked by hand: beside the first token, where it begins, where its first row ends, and
    where the paper begins again below its left side. Below its right corner the left neighbour predicts paper."""
    sheet = torch.zeros(5, 6, 1)
    sheet[1:3, 2:4] = 7.0
    errors = prediction_errors(sheet.flatten(0, 1), ((5, 6),), 0.0)
    assert torch.nonzero(errors).flatten().tolist() == [0, 6 + 2, 6 + 4, 18 + 2]


def test_tiles_predict_nothing_of_one_another() -> None:
    pixels = torch.zeros(8, 3)
    assert torch.isinf(prediction_errors(pixels, ((2, 2), (2, 2)), 0.0)).tolist() == [True, *[False] * 3] * 2


def test_blocks_of_pixels_lie_where_their_tokens_do() -> None:
    tiles = torch.arange(2 * 3 * 4 * 6.0).view(2, 3, 4, 6)
    blocks = pixels_of_tokens(tiles, ((2, 3), (2, 3)))
    assert blocks.shape == (12, 12)
    assert torch.equal(blocks[6 + 4], tiles[1, :, 2:4, 2:4].flatten())
    patches = torch.arange(24.0).view(8, 3)
    assert torch.equal(pixels_of_tokens(patches, ((1, 2),)), patches.view(2, 12))


def test_a_negative_tolerance_is_refused() -> None:
    with pytest.raises(SightlineError, match="tolerance"):
        PixelPrune(-1.0)
