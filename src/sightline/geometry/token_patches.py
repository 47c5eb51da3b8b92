"""Which patches a token is made from, and where they stand in a tower that lines them up in an order of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def merged_patches(rows: int, columns: int, merge: int) -> NDArray[np.int64]:
    """(N, merge * merge) patches of each token of a rows x columns grid, where patches are counted row by row.

    Token (r, c) is made from the patches in rows r * merge.. and columns c * merge.. of (columns * merge) in a row.
    """
    patches = np.arange(rows * columns * merge**2).reshape(rows, merge, columns, merge)
    return patches.transpose(0, 2, 1, 3).reshape(rows * columns, merge**2)


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
