"""The overlay of ``sightline.geometry`` as an SVG fragment, for pages that draw cells over an image themselves."""

from __future__ import annotations

import numpy as np

from sightline.geometry.lit_cells import DROPPED, MERGED, OUTSIDE, overlay

__all__ = ["DROPPED", "MERGED", "OUTSIDE", "cell_path", "overlay"]


def cell_path(cells: np.ndarray, chosen: np.ndarray, width: int, height: int, *, join: bool = True) -> str:
    """SVG path data of the chosen cells in pixels; ``join`` makes one piece of neighbours in a raster row."""
    parts: list[str] = []
    run: list[float] | None = None
    scaled = np.asarray(cells, dtype=float) * [width, height, width, height]
    for x1, y1, x2, y2 in scaled[np.asarray(chosen, dtype=bool)]:
        near = run is not None and abs(run[2] - x1) < 0.05 and abs(run[1] - y1) < 0.05 and abs(run[3] - y2) < 0.05
        if join and near and run is not None:
            run[2] = x2
            continue
        if run is not None:
            parts.append(_rectangle(run))
        run = [x1, y1, x2, y2]
    if run is not None:
        parts.append(_rectangle(run))
    return "".join(parts)


def _rectangle(box: list[float]) -> str:
    x1, y1, x2, y2 = box
    return f"M{x1:.4g} {y1:.4g}H{x2:.4g}V{y2:.4g}H{x1:.4g}Z"
