"""Grids of tokens whose tower attends within windows, and lines its rows up window by window."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def window_places(rows: int, columns: int, side: int) -> NDArray[np.int64]:
    """(N,) where each token of a row-major grid stands once windows of side x side tokens lie one behind the other.

    Windows follow one another row by row, as do the tokens of each; those at the right and lower edge may be smaller.
    Token (r, c) comes before all that are greater in (r // side, c // side, r, c).
    """
    row, column = np.divmod(np.arange(rows * columns), columns)
    order = np.lexsort((column, row, column // side, row // side))
    places = np.empty(len(order), dtype=np.int64)
    places[order] = np.arange(len(order))
    return places
