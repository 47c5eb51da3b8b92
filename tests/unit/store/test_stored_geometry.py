"""Masks that a run has stored, measured against regions once more."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from sightline.rows.picture import stored_geometry
from sightline.store.marks import pack_mask

QUARTERS = np.array([[0, 0, 0.5, 0.5], [0.5, 0, 1, 0.5], [0, 0.5, 0.5, 1], [0.5, 0.5, 1, 1]], dtype="<f4")


def test_a_mask_has_a_place_for_each_cell_of_its_own_image_however_many_tokens_the_full_prefix_has() -> None:
    """An arm that is shown a smaller image keeps all of its four cells, where the image itself has 16 tokens."""
    rows = pa.Table.from_pylist(
        [
            {
                "probe_id": "p",
                "image_key": "a.jpg#fit=4t",
                "n_tokens": 16,
                "kept_mask": pack_mask(np.array([True, True, False, False])),
                "lineage_mask": None,
            }
        ]
    )
    images = pa.Table.from_pylist([{"image_key": "a.jpg#fit=4t", "cells": QUARTERS.tobytes()}])
    (measured,) = stored_geometry(rows, images, {"p": [(0.0, 0.25, 1.0, 0.75)]})
    assert measured is not None
    assert measured.ecr == 0.5
