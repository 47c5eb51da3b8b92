"""Is the one substituted character kept, and is the word around it? Both from the mask that was answered from."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sightline.analysis.comparison import (
    OF_ANSWERS,
    Record,
    by_model,
    clustered_means,
    indexed,
    interval_columns,
    rates,
    table_of,
)
from sightline.analysis.outcomes import extra
from sightline.errors import SightlineError
from sightline.statistics.correct_positives import has_little_evidence, has_no_evidence
from sightline.statistics.plain_rows import plain_rows
from sightline.store.load import Run
from sightline.store.stored_geometry import stored_geometry

EDIT_REGION = "edit_region"
"""The kind of a probe whose only region is the substituted character."""
EDIT_DRAWS = 20_000
USUAL = ("random", "grid")
"""Selectors that every other arm is compared with."""
ROUNDING = 1e-6
"""Stored cells are float32: a word that is half covered counts as half covered, whatever its last digits say."""


def word_coverage(run: Run) -> pd.Series[float]:
    """(arm, probe id) -> coverage of the whole word by the mask of that row, by lineage as column ``ecr`` is.

    The control builder keeps the word's box apart from the region, so that neither selectors nor ``ecr`` see it.
    """
    kinds = run.rows.column("kind").to_numpy(zero_copy_only=False)
    rows = run.rows.take(np.flatnonzero(kinds == EDIT_REGION))
    words = {str(probe["id"]): extra(probe).get("word_region") for probe in run.probes}
    measured = stored_geometry(rows, run.images, {probe: [word] for probe, word in words.items() if word})
    index = pd.MultiIndex.from_arrays([rows.column(name).to_pylist() for name in ("arm", "probe_id")])
    return pd.Series([np.nan if one is None else one.ecr for one in measured], index, dtype=float, name="word_ecr")


def edit_region_table(
    frame: pd.DataFrame,
    words: pd.Series[float] | None = None,
    *,
    reference: str | None = None,
    draws: int = EDIT_DRAWS,
) -> pd.DataFrame:
    """Accuracy and coverage of the substituted character per arm, and what each arm gains over every control.

    All probes are positives: they ask for the word that is painted there. ``words`` is ``word_coverage(run)``; with it
    come ``word_ecr`` and ``word_kept_edit_lost``, the share with at least half of the word and less than half of the
    character. ``edit_gone`` is the share with nothing of the character. Gains are differences paired by image.

    ``reference`` names the arm that the others are compared with; by default each arm is compared with Random and Grid,
    of the same budget where rows say their budget.
    """
    glyphs = plain_rows(frame[frame["kind"] == EDIT_REGION])
    if words is not None:
        glyphs = glyphs.assign(
            word_ecr=words.reindex(pd.MultiIndex.from_frame(glyphs[["plain_arm", "probe_id"]])).to_numpy()
        )
    records: list[Record] = []
    for model, rows in by_model(glyphs):
        arms = {str(arm): indexed(part, str(arm)) for arm, part in rows.groupby("plain_arm", sort=False)}
        if reference is not None and reference not in arms:
            raise SightlineError(f"no edit-region rows of an arm '{reference}' to compare with")
        for arm, part in arms.items():
            record = {"model": model, "arm": arm, **rates(part), **_shares(part)}
            others = [reference] if reference else [other for other in arms if _is_control_of(arms[other], part)]
            gains = [_gains(part, arms[other], draws) | {"against": other} for other in others if other != arm]
            records += [record | gain for gain in gains] or [record]
    return table_of(
        records, "no edit-region rows; run the edit_region.jsonl of `sightline controls build text-replacement`"
    )


def _shares(part: pd.DataFrame) -> Record:
    record: Record = {"edit_gone": float(has_no_evidence(part["ecr"]).mean())}
    if "word_ecr" in part:
        lost = has_little_evidence(part["ecr"]) & ~has_little_evidence(part["word_ecr"] + ROUNDING)
        record |= {"word_ecr": float(part["word_ecr"].mean()), "word_kept_edit_lost": float(lost.mean())}
    return record


def _is_control_of(control: pd.DataFrame, part: pd.DataFrame) -> bool:
    if control["selector"].iloc[0] not in USUAL:
        return False
    pruned = "budget" in part and part["selector"].iloc[0] != "full"
    return not pruned or control["budget"].iloc[0] == part["budget"].iloc[0]


def _gains(part: pd.DataFrame, other: pd.DataFrame, draws: int) -> Record:
    """The arm minus another, on the probes that both have, all from the same draws of images."""
    shared = part.index.intersection(other.index)
    columns = {"accuracy_gain": "correct", "ecr_gain": "ecr", "word_ecr_gain": "word_ecr"}
    columns = {gain: column for gain, column in columns.items() if column in part}
    left, right = (side.loc[shared, list(columns.values())].astype(float).to_numpy() for side in (part, other))
    record: Record = {}
    images = part.loc[shared, "image_id"]
    for gain, found in zip(columns, clustered_means(left - right, images, draws, OF_ANSWERS), strict=True):
        record |= interval_columns(gain, found)
    return record
