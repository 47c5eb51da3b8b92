"""Rows joined into samples: for every positive its coverage, and what losing the evidence did to its margin."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from sightline.analysis.comparison import by_model, indexed, margins_of, on_image_alone
from sightline.core.probe import ORIGINAL
from sightline.errors import SightlineError
from sightline.statistics.arm_rows import plain_rows

OUTCOMES = (
    "occlusion_drop",
    "occlusion_specific_drop",
    "deletion_drop",
    "evidence_restoration_gain",
    "restoration_specific_gain",
)
COVERAGE = ("ecr", "lpp", "geo_f1", "anchor_ecr", "anchor_lpp", "anchor_geo_f1")
STRATA = ("small", "medium", "large", "constant")


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
