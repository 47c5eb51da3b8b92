"""Which patches of a grid tokens are made from, where neighbouring patches are merged, shuffled or pooled."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def merged_patches(rows: int, columns: int, merge: int) -> NDArray[np.int64]:
    """(N, merge^2) patches, counted row by row over rows x columns, of each square of merge x merge, row by row."""
    places = np.arange(rows * columns).reshape(rows // merge, merge, columns // merge, merge)
    merged: NDArray[np.int64] = places.transpose(0, 2, 1, 3).reshape(-1, merge * merge)
    return merged
