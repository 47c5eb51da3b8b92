"""Another word painted where the evidence stood: does the answer follow it, and one model's more than another's?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

import pandas as pd

from sightline.analysis.comparison import Record, answered_right, by_model, table_of, threshold_of
from sightline.statistics.intervals import wilson
from sightline.statistics.paired import mcnemar

VERSIONS = ("original", "replacement", "sham", "erase")
KINDS = [f"{version}_{asked}" for version in VERSIONS for asked in ("source", "target")]
Thresholds = float | Mapping[str, float] | None
"""One for all models, or one per model, 0 for a model that is not named; None for the answers that the rows hold."""


def text_replacement_table(frame: pd.DataFrame, *, threshold: Thresholds = None) -> pd.DataFrame:
    """The four-control test: both questions answered right on the original, the replacement, the sham, the erasure.

    A semantic switch is original and replacement; ``all_controls`` all four, with Wilson's interval. Answers are those
    that the rows hold, or at a ``threshold`` for all models or per model.
    """
    records: list[Record] = []
    for model, arm, passed in _passed(frame, threshold):
        every = passed.all(axis=1)
        low, high = wilson(int(every.sum()), len(every))
        record: Record = {"model": model, "arm": arm, "images": len(passed)}
        record |= {version: float(passed[version].mean()) for version in VERSIONS}
        record["semantic_switch"] = float((passed["original"] & passed["replacement"]).mean())
        record |= {"all_controls": float(every.mean()), "all_controls_low": low, "all_controls_high": high}
        records.append(record)
    return table_of(
        records, "no arm has all versions of an image; run a set of `sightline controls build text-replacement`"
    )


def text_replacement_models_table(frame: pd.DataFrame, *, threshold: Thresholds = None) -> pd.DataFrame:
    """Two models under the same arm on the same images: exact McNemar test of passing all four controls.

    ``only_first`` images pass under the first model alone, ``only_second`` under the second; images that one of the
    models was not asked about in full are left out.
    """
    strict: dict[str, dict[str, pd.Series[bool]]] = {}
    for model, arm, passed in _passed(frame, threshold):
        strict.setdefault(arm, {})[model] = passed.all(axis=1)
    records: list[Record] = []
    for arm, models in strict.items():
        for first, second in combinations(models, 2):
            both = models[first].index.intersection(models[second].index)
            if both.empty:
                continue
            left, right = models[first].loc[both], models[second].loc[both]
            test = mcnemar(left.to_numpy(), right.to_numpy())
            records.append(
                {
                    "arm": arm, "first": first, "second": second, "images": len(both),
                    "first_rate": float(left.mean()), "second_rate": float(right.mean()),
                    "only_first": test.first_only, "only_second": test.second_only, "mcnemar_p": test.p,
                }
            )  # fmt: skip
    return table_of(records, "no two models were asked about the same replaced words under the same arm")


def _passed(frame: pd.DataFrame, threshold: Thresholds) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Per model and arm: images x versions, True where both questions are answered right; complete images only."""
    for model, rows in by_model(frame[frame["kind"].isin(KINDS)]):
        cut = threshold_of(model, threshold)
        for arm, own in rows.groupby("plain_arm", sort=False):
            right = own.assign(right=answered_right(own, cut)).pivot_table(
                index="image_id", columns="kind", values="right"
            )
            if set(KINDS) <= set(right.columns):
                complete = right.dropna(subset=KINDS) == 1.0
                pairs = {v: complete[f"{v}_source"] & complete[f"{v}_target"] for v in VERSIONS}
                yield model, str(arm), pd.DataFrame(pairs)
