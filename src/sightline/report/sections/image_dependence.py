"""The same questions about a gray image or somebody else's: what was never read off the image?"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np
import pandas as pd

from sightline.analysis.comparison import (
    OF_ANSWERS,
    Record,
    answered_right,
    by_model,
    clustered_mean,
    held_threshold,
    interval_columns,
    table_of,
    threshold_of,
    views_of,
)
from sightline.analysis.outcomes import lexically_plausible
from sightline.core.probe import ORIGINAL
from sightline.core.table import Table, format_range, format_value
from sightline.report.columns import build_table, collect, first_choice, has_other, signed
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker, any_run_has
from sightline.rows.source import Audited, Source
from sightline.statistics.bootstrap import DRAWS, metric_interval
from sightline.statistics.metrics import METRICS, point, why_not
from sightline.statistics.summaries import arm_rows

WRONG = "image_mismatch_seed"
EVERY, PLAUSIBLE = "all", "plausible decoy"


@SECTIONS.register("image-dependence")
class ImageDependence(SectionMaker):
    id = "image-dependence"
    title = "Image dependence"
    order = 130
    in_overview = True
    lead = "The same questions about a gray image or somebody else's: what was never read off the image?"
    needs = (any_run_has(has_other("view", ORIGINAL)),)

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: image_dependence_table(context.source, context.draws))


ENDS = ("min", "max")
RANGED = ("accuracy", "hfpr", "auroc", "delta_accuracy")
"""Columns whose range over the seeds of wrong images the report's CSV has."""


def image_dependence_frame(
    frame: pd.DataFrame,
    *,
    threshold: float | Mapping[str, float] | None = None,
    images: Collection[str] | None = None,
    draws: int = DRAWS,
) -> pd.DataFrame:
    """The same questions about the matching image, a gray one and wrong ones.

    Answers are those that the rows hold, or at a ``threshold`` for all models or per model. ``images`` restricts the
    table to a stratum, for example ``outcomes.lexically_plausible(run.probes)``. The row ``wrong images`` averages over
    the seeds and has their range in ``_min`` and ``_max``. ``delta_accuracy`` is against the matching image, paired by
    image.
    """
    records: list[Record] = []
    chosen = frame if images is None else frame[frame["image_id"].isin(set(images))]
    for model, rows in by_model(chosen):
        cut = threshold_of(model, threshold)
        for arm, own in rows.groupby("plain_arm", sort=False):
            views = views_of(own, str(arm))
            controls = {v: p for v, p in views.items() if v == "blank" or v.startswith("image_mismatch_seed")}
            if ORIGINAL not in views or not controls:
                continue
            matched = views[ORIGINAL]
            lines = [{"condition": "matching image", **_image_metrics(matched, cut, draws)}]
            for view, part in controls.items():
                shared = part.index.intersection(matched.index)
                change = answered_right(part.loc[shared], cut) - answered_right(matched.loc[shared], cut)
                delta = clustered_mean(change, matched.loc[shared, "image_id"], draws, OF_ANSWERS)
                measured = _image_metrics(part, cut, draws)
                lines.append({"condition": view, **measured, **interval_columns("delta_accuracy", delta)})
            wrong = [line for line in lines if str(line["condition"]).startswith("image_mismatch_seed")]
            if len(wrong) > 1:
                names = [name for name in wrong[0] if name != "condition" and not name.endswith(("_low", "_high"))]
                seeds = {name: np.array([line[name] for line in wrong], dtype=np.float64) for name in names}
                lines.append({"condition": "wrong images", **{name: float(v.mean()) for name, v in seeds.items()}})
                lines[-1] |= {f"{name}_{end}": float(getattr(v, end)()) for name, v in seeds.items() for end in ENDS}
            at = held_threshold(matched) if cut is None else cut
            records += [{"model": model, "arm": arm, "threshold": at, **line} for line in lines]
    return table_of(
        records, "no arm was asked about gray or wrong images; run a set of `sightline controls build image-free`"
    )


def _image_metrics(rows: pd.DataFrame, threshold: float | None, draws: int) -> Record:
    has_margin = "margin" in rows
    arm = arm_rows(rows.reset_index(), threshold if has_margin else None)
    names = ("accuracy", "positive_accuracy", "negative_accuracy", "hfpr", "yes_rate", "auroc")
    record: Record = {"n": len(rows), "images": arm.n_images, **{name: point(METRICS[name], arm) for name in names}}
    record["balanced_accuracy"] = (record["positive_accuracy"] + record["negative_accuracy"]) / 2.0
    gap = _margin_gaps(rows) if has_margin else pd.Series(dtype=float)
    record |= {"margin_gap": float(gap.mean()), "margin_win_rate": float((gap > 0).mean()) if len(gap) else math.nan}
    record |= {"auroc_low": math.nan, "auroc_high": math.nan}
    if not why_not(METRICS["auroc"], arm) and arm.n_images > 1:
        found = metric_interval(arm, METRICS["auroc"], draws=draws)
        record |= {"auroc_low": found.low, "auroc_high": found.high}
    return record


def _margin_gaps(rows: pd.DataFrame) -> pd.Series[float]:
    """Per image with both labels the margin of its yes probe minus that of its no probe."""
    pairs = rows.pivot_table(index="image_id", columns="label", values="margin")
    if not {"yes", "no"} <= set(pairs.columns):
        return pd.Series(dtype=float)
    return (pairs["yes"] - pairs["no"]).dropna()


def image_dependence_table(source: Source, draws: int) -> Table:
    """The same questions about the matching image, a gray one and wrong ones, over all images and by stratum.

    Controls come from the run itself, or from runs of control sets over the same weights given beside it.
    """

    def pooled(run: Audited) -> pd.DataFrame:
        own = [run.rows]
        for control in source.controls:
            if control.setting == run.setting:
                own.append(control.rows[~control.rows["view"].isin(set(run.rows["view"]))])
        return pd.concat(own, ignore_index=True) if len(own) > 1 else own[0]

    def make(run: Audited) -> pd.DataFrame:
        rows = pooled(run)
        made = image_dependence_frame(rows, draws=draws).assign(stratum=EVERY)
        marked = (one.run.each_probe("lexically_plausible") for one in (run, *source.controls))
        same = run.run.same_images
        plausible = {same.get(name, name) for name in set[str]().union(*map(lexically_plausible, marked))}
        if not plausible & set(rows["image_id"].unique()):
            return made
        part = image_dependence_frame(rows, images=plausible, draws=draws).assign(stratum=PLAUSIBLE)
        return pd.concat([made, part], ignore_index=True)

    def controlled(run: Audited) -> bool:
        views = pooled(run)["view"].unique().astype(str)
        return any(view == "blank" or view.startswith(WRONG) for view in views)

    frame = collect(Source(list(filter(controlled, source.runs)), []), lambda rows: True, make)
    sentence = _image_sentence(source, frame)
    named = {"matching image": "matching", "blank": "gray", "wrong images": "wrong, mean"}
    frame["condition"] = frame["condition"].replace(named).str.replace(WRONG, "wrong, seed ")
    narrow = "stratum" if frame["stratum"].nunique() > 1 else ""
    ranges = [f"{name}_{end}" for name in RANGED for end in ENDS]
    return build_table(
        "image_dependence", frame, source, filter=narrow, sentence=sentence, unprinted=ranges, at=source.at
    )


def _image_sentence(source: Source, frame: pd.DataFrame) -> str:
    arm = first_choice(source, frame)
    own = frame[(frame["arm"] == arm) & (frame["stratum"] == EVERY)].set_index("condition")
    parts = []
    if "blank" in own.index:
        parts.append(f"gray ones change it by {signed(own.loc['blank'], 'delta_accuracy')}")
    wrong = [name for name in own.index if str(name).startswith(WRONG)]
    if len(wrong) == 1:
        parts.append(f"wrong ones change it by {signed(own.loc[wrong[0]], 'delta_accuracy')}")
    elif wrong:
        changes = own.loc[wrong, "delta_accuracy"]
        spread = format_range(changes.min(), changes.max(), "signed")
        parts.append(f"wrong ones by {spread} over {len(wrong)} seeds")
    matched = format_value(own.loc["matching image", "accuracy"], "score")
    return f"Accuracy of {arm} is {matched} on the matching images; {', '.join(parts)}."
