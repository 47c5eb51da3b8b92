"""The array types that statistics functions take and return, and the one way in for true/false columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sightline.errors import SightlineError

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
AnyArray = NDArray[Any]


def flags(values: ArrayLike, name: str) -> BoolArray:
    """True/false or 0/1 as a boolean array. Refuses words: numpy would take the string "no" for true."""
    found = np.asarray(values)
    if found.dtype != bool and not (found.dtype.kind in "iuf" and np.isin(found, (0, 1)).all()):
        raise SightlineError(f"{name} must be true or false on every row (yes = true)")
    return found.astype(bool)
