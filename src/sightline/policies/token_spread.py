"""Where tokens stand in an image, in a number or two."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

WIDEST = 0.5**0.5
"""Dispersion of weight that is split between opposite corners."""


def centres_of(cells: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """(N, 4) cells -> (N, 2) x and y of their middles."""
    boxes = cells.astype(np.float64)
    return (boxes[:, :2] + boxes[:, 2:]) / 2.0


def blocks_of(cells: NDArray[np.floating[Any]], side: int) -> NDArray[np.int64]:
    """(N,) which of side x side blocks of the image, row by row, holds the middle of each cell."""
    columns, rows = np.clip((centres_of(cells) * side).astype(np.int64), 0, side - 1).T
    blocks: NDArray[np.int64] = rows * side + columns
    return blocks


def dispersion(cells: NDArray[np.floating[Any]], weights: NDArray[np.float64]) -> float:
    """Root mean squared distance from the weighted centre, over its largest value; weights (N,) sum to 1."""
    places = centres_of(cells)
    away = places - weights @ places
    return min(1.0, float(np.sqrt(weights @ (away * away).sum(axis=1))) / WIDEST)
