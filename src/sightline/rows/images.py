"""Image records of a run: some of them, the cells of all, and how large evidence is beside them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sightline.core.probe import ORIGINAL
from sightline.geometry.coverage import Boxes, region_areas
from sightline.rows.reader import compact_frame, read_probe_records
from sightline.statistics.arm_rows import as_names, looked_up
from sightline.store.folder import RunFiles
from sightline.store.shard_files import unpack_cells


def image_records(run: RunFiles, keys: Collection[str]) -> dict[str, dict[str, Any]]:
    """The records of some images by their keys; a key that the run has no record of is left out."""
    wanted, found = pa.array(sorted(keys), pa.string()), dict[str, dict[str, Any]]()
    owner = run.owner()
    for piece in run.image_pieces():
        places = np.flatnonzero(pc.is_in(owner.read(piece, ["image_key"]).column(0), wanted))
        if len(places):
            for record in owner.read(piece).take(pa.array(places)).to_pylist():
                found.setdefault(record["image_key"], record)
    return found


def image_cells(run: RunFiles) -> tuple[dict[str, int], list[NDArray[np.float32]]]:
    """Image key -> which set of cells it has, and the sets: images of one size share theirs."""
    sets: dict[bytes, int] = {}
    of_image: dict[str, int] = {}
    owner = run.owner()
    for piece in run.image_pieces():
        for chunk in owner.read(piece, ["image_key", "cells"]).to_batches():
            packed = chunk.column("cells").dictionary_encode()
            numbers = np.array([sets.setdefault(one, len(sets)) for one in packed.dictionary.to_pylist()])
            keys = chunk.column("image_key").to_pylist()
            of_image.update(zip(keys, numbers[packed.indices.to_numpy()].tolist(), strict=True))
    return of_image, [unpack_cells(packed) for packed in sets]


# How large a probe's evidence is beside the cells of its image.

SCALES = {
    "evidence_area": "evidence area",
    "median_cell_area": "median cell area",
    "box_cell_ratio": "evidence area / cell area",
}
"""How large the evidence of a probe is, its cells are, and the one beside the other: column -> in words."""
KEYS = ("probe_id", "view", "image_key", "n_tokens")
"""Columns that tell which image a probe was asked about, and whether it was shown whole."""
PROBES_AT_ONCE = 100_000


def probe_scales(run: RunFiles, rows: pd.DataFrame | None = None) -> pd.DataFrame:
    """Per probe with regions: area of the union of its regions, median area of the image's cells, and their ratio.

    ``rows`` are those of the run that say which image a probe was asked about (``KEYS``), if somebody has them already.
    """
    of_image, sets = image_cells(run)
    keys = compact_frame(run, KEYS.__contains__) if rows is None else rows[list(KEYS)]
    keys = keys[keys["view"] == ORIGINAL].drop_duplicates(["probe_id", "image_key"])
    cells = looked_up(keys["image_key"], pd.Series(of_image, dtype="int64"))
    # An image that an arm was shown smaller has fewer cells than the full prefix has tokens.
    whole = cells.map(dict(enumerate(map(len, sets)))) == keys["n_tokens"]
    shown = pd.Series(cells[whole].to_numpy(dtype=np.int64), index=as_names(keys.loc[whole, "probe_id"]))
    shown = shown[~shown.index.duplicated()]
    asked = [one.astype(np.float64) if len(one) else np.full((1, 4), np.nan) for one in sets]  # none: no cells
    middle = [float(np.median((one[:, 2] - one[:, 0]) * (one[:, 3] - one[:, 1]))) for one in asked]
    parts = [_scales(block, shown, asked, middle) for block in _blocks(read_probe_records(run.probe_file))]
    found = pd.concat(parts) if parts else pd.DataFrame(columns=list(SCALES), dtype=float)
    return found.groupby(level=0, sort=False).last().rename_axis("probe_id") if found.index.has_duplicates else found


def _blocks(probes: Iterator[dict[str, Any]]) -> Iterator[list[tuple[str, Boxes]]]:
    """Probes with regions about the original image, some at a time: name and regions."""
    asked = (
        (str(probe["id"]), probe["regions"])
        for probe in probes
        if probe.get("view", ORIGINAL) == ORIGINAL and probe["regions"]
    )
    while block := list(islice(asked, PROBES_AT_ONCE)):
        yield block


def _scales(
    block: list[tuple[str, Boxes]], shown: pd.Series[int], cells: list[NDArray[np.float64]], middle: list[float]
) -> pd.DataFrame:
    names = pd.Index([name for name, _ in block], dtype="str", name="probe_id")
    place = shown.index.get_indexer(names)
    area, median = np.full(len(block), np.nan), np.full(len(block), np.nan)
    which = np.where(place >= 0, shown.to_numpy()[place], -1) if len(shown) else np.full(len(block), -1)
    for one in np.unique(which[which >= 0]):
        own = np.flatnonzero(which == one)
        area[own], median[own] = region_areas(cells[one], [block[i][1] for i in own]), middle[one]
    scales = dict(zip(SCALES, (area, median, area / median), strict=True))
    return pd.DataFrame(scales, index=names)[which >= 0]
