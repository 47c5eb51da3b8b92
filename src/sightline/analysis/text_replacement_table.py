"""Another word painted where the evidence stood, and coverage of the one substituted character."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from sightline.analysis.comparison import (
    Record,
    answered_right,
    by_model,
    clustered_mean,
    indexed,
    interval_columns,
    rates,
    table_of,
    threshold_of,
)
from sightline.statistics.bootstrap import DRAWS
from sightline.statistics.intervals import wilson
from sightline.statistics.plain_rows import plain_rows


def text_replacement_table(
    frame: pd.DataFrame, *, threshold: float | Mapping[str, float] | None = None
) -> pd.DataFrame:
    """The four-control test: both questions answered right on the original, the replacement, the sham, the erasure.

    A semantic switch is original and replacement; ``all_controls`` all four, with Wilson's interval. Answers are those
    that the rows hold, or at a ``threshold`` for all models or per model.
    """
    versions = ("original", "replacement", "sham", "erase")
    kinds = [f"{version}_{asked}" for version in versions for asked in ("source", "target")]
    asked = frame[frame["kind"].isin(kinds)]
    records: list[Record] = []
    for model, rows in by_model(asked):
        cut = threshold_of(model, threshold)
        for arm, own in rows.groupby("plain_arm", sort=False):
            right = own.assign(right=answered_right(own, cut)).pivot_table(
                index="image_id", columns="kind", values="right"
            )
            if not set(kinds) <= set(right.columns):
                continue
            complete = right.dropna(subset=kinds)
            pair = {v: (complete[[f"{v}_source", f"{v}_target"]] == 1.0).all(axis=1) for v in versions}
            every = pd.DataFrame(pair).all(axis=1)
            low, high = wilson(int(every.sum()), len(every))
            record = {"model": model, "arm": arm, "images": len(complete)}
            record |= {version: float(passed.mean()) for version, passed in pair.items()}
            record["semantic_switch"] = float((pair["original"] & pair["replacement"]).mean())
            record |= {"all_controls": float(every.mean()), "all_controls_low": low, "all_controls_high": high}
            records.append(record)
    return table_of(
        records, "no arm has all versions of an image; run a set of `sightline controls build text-replacement`"
    )


def edit_region_table(frame: pd.DataFrame, *, reference: str | None = None, draws: int = DRAWS) -> pd.DataFrame:
    """Is the one substituted character kept? Accuracy and glyph coverage per arm, and its gain over every control.

    ``reference`` names the arm that the others are compared with; by default each arm is compared with Random and Grid.
    """
    glyphs = plain_rows(frame[frame["kind"] == "edit_region"])
    records: list[Record] = []
    for model, rows in by_model(glyphs):
        arms = {str(arm): indexed(part, str(arm)) for arm, part in rows.groupby("plain_arm", sort=False)}
        usual = [arm for arm, part in arms.items() if part["selector"].iloc[0] in ("random", "grid")]
        for arm, part in arms.items():
            record = {"model": model, "arm": arm, **rates(part)}
            others = [other for other in ([reference] if reference else usual) if other != arm and other in arms]
            for other in others:
                shared = part.index.intersection(arms[other].index)
                gain = part.loc[shared, "ecr"].astype(float) - arms[other].loc[shared, "ecr"].astype(float)
                interval = clustered_mean(gain, part.loc[shared, "image_id"], draws)
                records.append({**record, "against": other, **interval_columns("ecr_gain", interval)})
            if not others:
                records.append(record)
    return table_of(
        records, "no edit-region rows; run the edit_region.jsonl of `sightline controls build text-replacement`"
    )
