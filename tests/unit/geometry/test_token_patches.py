from __future__ import annotations

import numpy as np
import pytest

from sightline.geometry.cells import merged_patches, window_places


def test_a_token_is_made_from_a_square_of_patches() -> None:
    assert merged_patches(2, 3, 2).tolist() == [
        [0, 1, 6, 7], [2, 3, 8, 9], [4, 5, 10, 11], [12, 13, 18, 19], [14, 15, 20, 21], [16, 17, 22, 23]
    ]  # fmt: skip
    assert merged_patches(2, 3, 1).tolist() == [[0], [1], [2], [3], [4], [5]]


def test_windows_lie_one_behind_the_other_and_are_smaller_at_the_edges() -> None:
    """3 x 5 tokens in windows of 2 x 2: their order, and thus the place of each."""
    order = [0, 1, 5, 6, 2, 3, 7, 8, 4, 9, 10, 11, 12, 13, 14]
    places = window_places(3, 5, 2)
    assert places[order].tolist() == list(range(15))


@pytest.mark.parametrize("side", [5, 8])
def test_one_window_over_all_changes_no_order(side: int) -> None:
    assert np.array_equal(window_places(5, 4, side), np.arange(20))
