"""Rows joined into samples: for every positive its coverage, and what losing the evidence did to its margin."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from sightline.analysis.comparison import by_model, indexed, margins_of, on_image_alone
from sightline.core.probe import ORIGINAL
from sightline.errors import SightlineError
from sightline.geometry.coverage import Boxes, region_areas
from sightline.statistics.arm_rows import as_names, looked_up, plain_rows
from sightline.store.chosen_images import image_cells
from sightline.store.compact_frame import compact_frame
from sightline.store.load import Run

OUTCOMES = (
    "occlusion_drop",
    "occlusion_specific_drop",
    "deletion_drop",
    "evidence_restoration_gain",
    "restoration_specific_gain",
)
COVERAGE = ("ecr", "lpp", "geo_f1", "anchor_ecr", "anchor_lpp", "anchor_geo_f1")
SCALES = ("evidence_area", "median_cell_area", "box_cell_ratio")
STRATA = ("small", "medium", "large", "constant")
KEYS = ("probe_id", "view", "image_key", "n_tokens")
"""Columns that tell which image a probe was asked about, and whether it was shown whole."""
PROBES_AT_ONCE = 100_000


def probe_scales(run: Run, rows: pd.DataFrame | None = None) -> pd.DataFrame:
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
    asked = [one.astype(np.float64) for one in sets]
    middle = [float(np.median((one[:, 2] - one[:, 0]) * (one[:, 3] - one[:, 1]))) for one in asked]
    parts = [_scales(block, shown, asked, middle) for block in _blocks(run.each_probe())]
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


def samples(frame: pd.DataFrame, scales: pd.DataFrame, columns: Sequence[str] | None = None) -> pd.DataFrame:
    """One line per model, arm and positive probe with regions; with all columns, or those that are named.

    Coverage and margin are the plain arm's. Drops are margins before minus margins after: occlusion on the Full arm
    (``occlusion_specific_drop`` subtracts what graying as large a box elsewhere does), deletion and restoration on the
    arm itself. NaN where an intervention was not run.
    """
    found = []
    margins_of(frame)
    for model, rows in by_model(frame):
        full = _full_margins(rows)
        positives = rows[(rows["label"] == "yes") & rows["ecr"].notna()]
        for arm, own in positives.groupby("plain_arm", sort=False):
            if (own["selector"] == "full").all():
                continue
            kept = indexed(plain_rows(own), f"arm {arm}")
            sample = kept[["image_id", "selector", "budget", *COVERAGE]].copy()
            sample["selected_margin"], sample["selected_correct"] = kept["margin"], kept["correct"]
            sample = sample.join(full, how="left").join(_deletions(own, kept), how="left").join(scales, how="left")
            sample = sample.reset_index().assign(model=model, arm=arm)
            found.append(sample if columns is None else sample[list(columns)])
    if not found:
        raise SightlineError("no positive probe of a pruning arm has regions; construct validity needs some")
    return pd.concat(found, ignore_index=True)


def _full_margins(rows: pd.DataFrame) -> pd.DataFrame:
    """Per probe the plain Full arm's margin and what occlusion takes from it."""
    # Full has interventions of its own: none but those on the image may pass for what Full says about a view.
    full = rows[(rows["selector"] == "full") & on_image_alone(rows)]
    margins = full.pivot_table(index="probe_id", columns="view", values="margin", aggfunc="first")
    nothing = pd.Series(np.nan, index=margins.index)
    original = margins.get(ORIGINAL, nothing)
    evidence, elsewhere = margins.get("evidence_masked", nothing), margins.get("random_masked", nothing)
    return pd.DataFrame(
        {
            "full_margin": original,
            "occlusion_drop": original - evidence,
            "occlusion_specific_drop": (original - evidence) - (original - elsewhere),
        }
    )


def _deletions(own: pd.DataFrame, kept: pd.DataFrame) -> pd.DataFrame:
    variants = own[own["view"] == ORIGINAL].pivot_table(
        index="probe_id", columns="intervention", values="margin", aggfunc="first"
    )
    nothing = pd.Series(np.nan, index=kept.index)
    removed = variants.get("remove_evidence", nothing)
    restored, instead = (variants.get(f"{kind}=1.0", nothing) for kind in ("restore_evidence", "restore_random"))
    return pd.DataFrame(
        {
            "deletion_drop": kept["margin"] - removed,
            "evidence_restoration_gain": restored - removed,
            "restoration_specific_gain": restored - instead,
        }
    )


def tertiles(values: pd.Series) -> pd.Series:
    """small, medium or large: at most the first third, at most the second, above; constant when nothing varies."""
    if values.nunique() < 2:
        return pd.Series(STRATA[3], index=values.index).where(values.notna())
    first, second = np.quantile(values.dropna(), [1 / 3, 2 / 3])
    return pd.Series(
        np.select([values <= first, values <= second], STRATA[:2], default=STRATA[2]), index=values.index
    ).where(values.notna())


def lexically_plausible(probes: Iterable[Mapping[str, Any]]) -> set[str]:
    """Images that a control set marks as having a decoy that is a word elsewhere; from ``run.probes``."""
    return {str(probe["image_id"]) for probe in probes if extra(probe).get("lexically_plausible")}


def extra(probe: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a probe of ``run.probes`` says beside its fields."""
    found = probe.get("extra") or {}
    return json.loads(found) if isinstance(found, str) else found
