"""Masks and cells as the bytes that a run folder holds."""

from __future__ import annotations

import numpy as np

from sightline.errors import SightlineError


def unpack_mask(packed: bytes, n: int) -> np.ndarray:
    """(N,) bool from a row's bit-packed mask."""
    if len(packed) != (n + 7) // 8:
        raise SightlineError(
            f"a mask of {8 * len(packed)} bits stands beside an image of {n} cells: rows and images of the run folder "
            "do not belong together"
        )
    return np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=n).astype(bool)


def pack_mask(kept: np.ndarray) -> bytes:
    return np.packbits(kept.astype(bool)).tobytes()


def unpack_cells(packed: bytes) -> np.ndarray:
    """(N, 4) float32 from an image record."""
    return np.frombuffer(packed, dtype="<f4").reshape(-1, 4)
