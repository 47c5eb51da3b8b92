"""Masks that a run has stored, measured against regions: those of its probes, or others that somebody names."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sightline.geometry.coverage import Geometry, RegionGeometry
from sightline.store.packing import unpack_cells, unpack_mask

Boxes = Sequence[Sequence[float]]
NEEDED = ("probe_id", "image_key", "kept_mask", "lineage_mask")
"""Columns that a row is measured by."""


def stored_geometry(rows: pa.Table, images: pa.Table, regions: Mapping[str, Boxes]) -> list[Geometry | None]:
    """One geometry per row, from the very mask that was answered from; None for a probe without regions.

    ``rows`` are some of a run's, ``images`` all of its images, ``regions`` boxes by probe id in fractions of the image.
    Coverage by lineage and by anchors are both there, as in a row.
    """
    lines = rows.select(list(NEEDED)).to_pylist()
    groups: dict[tuple[str, str], list[int]] = {}
    for place, line in enumerate(lines):
        if regions.get(line["probe_id"]):
            groups.setdefault((line["image_key"], line["probe_id"]), []).append(place)
    records = images.select(["image_key", "cells"]).to_pylist()
    cells = {record["image_key"]: record["cells"] for record in records}
    found: list[Geometry | None] = [None] * len(lines)
    for (image, probe), places in groups.items():
        own = unpack_cells(cells[image]).astype(np.float64)
        plane = RegionGeometry(own, regions[probe])
        kept, lineage = (np.stack([_mask(lines[place], name, len(own)) for place in places]) for name in NEEDED[-2:])
        for place, geometry in zip(places, plane.measure_many(lineage, kept), strict=True):
            found[place] = geometry
    return found


def _mask(line: Mapping[str, Any], name: str, n: int) -> NDArray[np.bool_]:
    """(n,) one of a row's two masks, over the cells of its image; what was not merged has its anchors for a lineage."""
    return unpack_mask(line[name] or line["kept_mask"], n)


def with_anchor_precision(
    rows: pa.Table, images: Callable[[], pa.Table], probes: Callable[[], list[dict[str, Any]]]
) -> pa.Table:
    """The rows with ``anchor_lpp`` and ``anchor_geo_f1`` measured where an earlier release merged and did not say.

    Images and probes of the run are read only if that is so.
    """
    unknown = pc.and_(pc.is_null(rows.column("anchor_lpp")), pc.is_valid(rows.column("lpp")))
    places = np.flatnonzero(np.asarray(unknown))
    if not len(places):
        return rows
    regions = {str(probe["id"]): probe["regions"] for probe in probes()}
    measured = stored_geometry(rows.take(pa.array(places)), images(), regions)
    for name in ("anchor_lpp", "anchor_geo_f1"):
        values = rows.column(name).to_numpy().copy()
        values[places] = [np.nan if one is None else getattr(one, name) for one in measured]
        column = pa.array(values, pa.float64(), mask=np.isnan(values))
        rows = rows.set_column(rows.column_names.index(name), rows.schema.field(name), column)
    return rows
