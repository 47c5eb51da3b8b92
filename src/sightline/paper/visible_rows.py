"""Coverage as the paper counts it: of the part of the evidence that the vision tower sees at all.

Its boxes are those of the processed image, so Full covers everything. A tower that crops, such as LLaVA's, never sees
some of the annotated words; rows count them as uncovered, the paper's tables do not count them.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

COVERAGES = {"ecr": ("lpp", "geo_f1"), "anchor_ecr": ("anchor_lpp", "anchor_geo_f1")}
"""Coverage -> (precision, harmonic mean of both)."""


def of_visible_evidence(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with ecr := ecr / visible and Geo-F1 to match; no coverage where nothing of the evidence is visible."""
    if "visible" not in rows or not (rows["visible"].astype(float) < 1.0).any():
        return rows
    visible = rows["visible"].astype(float).where(rows["visible"].astype(float) > 0.0)
    changed: dict[str, pd.Series[float]] = {}
    for coverage, (precision, both) in COVERAGES.items():
        relative = rows[coverage].astype(float) / visible
        local = rows[precision].astype(float)
        total = (relative + local).replace(0.0, np.nan)
        changed[coverage] = relative
        changed[both] = (2.0 * relative * local / total).fillna(0.0).where(relative.notna())
    return rows.assign(**changed)
