"""One threshold everywhere: rows whose answers are given at a threshold that is named or chosen on development rows.

    rows, words, chosen = apply_thresholds(frame, None, "full-dev")

``margin`` stays what was recorded, so rankings, calibration and differences of margins do not move; ``predicted`` and
``correct`` are the answers at ``threshold``, a new column, and every table that reads answers is at it by construction.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import pandas as pd

from sightline.errors import SightlineError, located
from sightline.probes.probe_file import hash_side
from sightline.statistics.arm_rows import is_plain, looked_up
from sightline.statistics.thresholds import (
    Development,
    ThresholdLike,
    ThresholdRule,
    check_models,
    evaluate,
    read_thresholds,
    shown,
    threshold_for,
)

NO_MARGIN = "the rows have no margin: their scorer gives answers alone"
NONE_LEFT = "every image is on the development side and none is left to be judged; add images"
HASH_SPLIT = "the development side of the split by image (SHA-1 of the image id)"

CHOSEN = ("model", "arm", "rule", "threshold", "dev_probes", "dev_accuracy", "dev_hfpr")
"""Columns of a table of thresholds, one line per model and plain arm; the last three are empty of a given number."""


class AppliedThresholds(NamedTuple):
    """Rows at their thresholds, where those come from, and what they are."""

    rows: pd.DataFrame
    """Judged rows alone: without the development side where a rule was chosen on the split of these rows."""
    words: str
    chosen: pd.DataFrame
    """Columns ``CHOSEN``."""


def apply_thresholds(
    rows: pd.DataFrame, development_rows: pd.DataFrame | None, rule: ThresholdLike
) -> AppliedThresholds:
    """Every row's answer at the threshold of its model and plain arm.

    A rule is chosen on the plain rows of ``development_rows``, other images of the same models, and applied to all
    ``rows``; without them it is chosen on the development side of the grouped hash split of ``rows`` and applied to the
    other side, which alone is returned. Numbers need neither, and rows of a model without a rule stay as they are.
    """
    rules = read_thresholds(rule)
    rows = rows.reset_index(drop=True)
    models = [str(model) for model in rows["model"].unique()]
    check_models(rules, models)
    parts, sentences, tables = [], [], []
    for model in models:
        own, chosen_by = rows[rows["model"] == model], threshold_for(rules, model)
        if chosen_by is None:
            parts.append(own.assign(threshold=0.0))
            continue
        if development_rows is not None or not chosen_by.needs_development:
            there = own.iloc[:0] if development_rows is None else development_rows
            development, where = there[there["model"] == model], "the development rows"
        else:
            aside = on_development_side(own)
            development, own, where = own[aside], own[~aside], HASH_SPLIT
        name = model if len(models) > 1 else ""
        with located(name):
            table = choose(own, development, chosen_by)
        parts.append(at_thresholds(own, table))
        tables.append(table)
        sentences.append(words_of(chosen_by, table, own, development, where, name))
    return AppliedThresholds(
        pd.concat(parts).sort_index().reset_index(drop=True),
        " ".join(sentences),
        pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=list(CHOSEN)),
    )


def on_development_side(rows: pd.DataFrame) -> pd.Series[bool]:
    """Per row whether its image falls on the development side of the grouped hash split."""
    images = rows["image_id"]
    sides = {str(image): hash_side(str(image)) == "dev" for image in images.unique()}
    return looked_up(images, pd.Series(sides, dtype=bool)).astype(bool)


def choose(rows: pd.DataFrame, development: pd.DataFrame, rule: ThresholdRule) -> pd.DataFrame:
    """The threshold of every plain arm of ``rows``, rows of one model, with what it does on the development rows."""
    _check(rows, development if rule.needs_development else None)
    seen = development_of(development) if rule.needs_development else Development({}, None)
    lines: list[dict[str, object]] = []
    for arm in rows["plain_arm"].astype(str).unique():
        with located(f"arm '{arm}'"):
            threshold = rule.threshold(arm, seen)
        line = {"model": str(rows["model"].iloc[0]), "arm": arm, "rule": str(rule), "threshold": threshold}
        if arm in seen.arms:
            labels, margins = seen.arms[arm]
            point = evaluate(labels, margins, threshold)
            line |= {"dev_probes": len(labels), "dev_accuracy": point.accuracy, "dev_hfpr": point.hfpr}
        lines.append(line)
    return pd.DataFrame(lines, columns=list(CHOSEN)).astype({"dev_probes": "Int64"})


def _check(rows: pd.DataFrame, development: pd.DataFrame | None) -> None:
    """Whether a threshold can be set on the one side and, where there are development rows, chosen on the other."""
    for side in (rows,) if development is None else (rows, development):
        if "margin" not in side or (len(side) and side["margin"].isna().all()):
            raise SightlineError(f"{NO_MARGIN}, and there is no threshold to set")
    if rows.empty:
        raise SightlineError(NONE_LEFT)
    if development is not None and not {"yes", "no"} <= set(development["label"].unique()):
        raise SightlineError("thresholds need both labels on the development images; add images")


def development_of(rows: pd.DataFrame) -> Development:
    """What a rule may look at: the plain rows of one model by arm. An arm under an intervention has its plain arm's."""
    told = {"view", "intervention"} <= set(rows.columns)
    plain = rows[is_plain(rows) if told else rows["arm"] == rows["plain_arm"]]
    arms = {str(arm): own for arm, own in plain.groupby("plain_arm", sort=False)}
    full = next((arm for arm, own in arms.items() if (own["selector"] == "full").all()), None)
    return Development(
        {
            arm: ((own["label"] == "yes").to_numpy(), own["margin"].to_numpy(dtype=np.float64))
            for arm, own in arms.items()
        },
        full,
    )


def at_thresholds(rows: pd.DataFrame, chosen: pd.DataFrame) -> pd.DataFrame:
    """The rows with ``threshold`` and the answers at it, by plain arm; rows of one model.

    An answer without a finite margin stays as it was recorded.
    """
    by_arm = dict(zip(chosen["arm"], chosen["threshold"].astype(float), strict=True))
    threshold = rows["plain_arm"].astype(str).map(by_arm).astype(float)
    margin = rows["margin"].astype(np.float64)
    answered = pd.Series(np.where(margin >= threshold, "yes", "no"), index=rows.index)
    known = pd.Series(np.isfinite(margin), index=rows.index)
    before = rows["predicted"]
    if isinstance(before.dtype, pd.CategoricalDtype):  # it has to hold both words, in the order of the names
        before = before.cat.set_categories(sorted({"yes", "no", *before.cat.categories}))
    return rows.assign(
        threshold=threshold,
        predicted=before.where(~known, answered),
        correct=rows["correct"].where(~known, answered == rows["label"]).astype(bool),
    )


def words_of(
    rule: ThresholdRule,
    chosen: pd.DataFrame,
    judged: pd.DataFrame,
    development: pd.DataFrame,
    where: str,
    name: str = "",
) -> str:
    """One sentence: the threshold, whose it is, on what it was chosen and on what it is judged."""
    low, high = (shown(float(end)) for end in (chosen["threshold"].min(), chosen["threshold"].max()))
    values = f"t = {low}" if low == high else f"t from {low} to {high}"
    sentence = f"{f'In {name} the' if name else 'The'} threshold is {rule.words}, {values}"
    if not rule.needs_development:
        return f"{sentence}."
    sentence += f"; chosen on {development['image_id'].nunique()} images, {where}"
    if where != HASH_SPLIT:
        return f"{sentence}, and judged on all images here."
    return f"{sentence}, and judged on the other {judged['image_id'].nunique()}: they alone are in the tables."


def threshold_words(thresholds: Iterable[float]) -> str:
    """The few words of a caption: ``at t = 0``, ``at t = 2.043``, or ``at each arm's threshold``."""
    different = set(thresholds)
    return f"at t = {shown(different.pop())}" if len(different) == 1 else "at each arm's threshold"
