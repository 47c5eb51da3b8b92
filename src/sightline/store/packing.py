"""Masks and cells as the bytes that a run folder holds."""

from __future__ import annotations

import numpy as np


def unpack_mask(packed: bytes, n: int) -> np.ndarray:
    """(N,) bool from a row's bit-packed mask."""
    return np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=n).astype(bool)


def pack_mask(kept: np.ndarray) -> bytes:
    return np.packbits(kept.astype(bool)).tobytes()


def unpack_cells(packed: bytes) -> np.ndarray:
    """(N, 4) float32 from an image record."""
    return np.frombuffer(packed, dtype="<f4").reshape(-1, 4)
