"""What is shown when evidence is magnified: the regions with enough around them to see where they stand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def surroundings(regions: Sequence[Sequence[float]], width: float, height: float) -> tuple[float, float, float, float]:
    """(x1, y1, x2, y2) in pixels of an image of that size, around ``regions`` in fractions of it, never beyond it.

    At least a fifth of the image wide and three times as wide as high, unless the regions are higher.
    """
    boxes = np.asarray(regions, dtype=float) * [width, height, width, height]
    left, top = boxes[:, :2].min(axis=0)
    right, bottom = boxes[:, 2:].max(axis=0)
    wide = min(float(width), max((right - left) * 1.8, (bottom - top) * 6, width / 5))
    tall = min(float(height), max(wide / 3, (bottom - top) * 1.6))
    x = min(max(0.0, (left + right - wide) / 2), width - wide)
    y = min(max(0.0, (top + bottom - tall) / 2), height - tall)
    return float(x), float(y), float(x + wide), float(y + tall)
