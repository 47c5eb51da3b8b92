"""What all intervention tables share: rows by image view, target support, and means with image-cluster intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from sightline.core.probe import ORIGINAL
from sightline.errors import SightlineError
from sightline.interventions import INTERVENTIONS
from sightline.statistics.arm_rows import UNCHANGED, FloatArray, are_in_words, as_names, numbered, plain_rows
from sightline.statistics.bootstrap import DRAWS, SEED, mean_draws
from sightline.statistics.intervals import UNLIMITED, Estimate, interval, mean_shares
from sightline.statistics.paired import (
    EXAMPLE_DRAWS,
    ScoreDifferences,
    describe_difference,
    equally_weighted,
    sign_flip_p,
)
from sightline.statistics.summaries import arm_points

Record = dict[str, Any]
OF_ANSWERS = (-1.0, 1.0)
"""Limits of a change of right answers, or of coverage."""


def by_model(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    models = frame["model"].unique()
    if len(models) == 1:
        yield str(models[0]), frame  # as it is: a run's rows are not held a second time
        return
    for model, rows in frame.groupby("model", sort=False):
        yield str(model), rows


def indexed(rows: pd.DataFrame, what: str) -> pd.DataFrame:
    """Rows by probe; a probe that occurs twice would be compared with itself, so that is refused."""
    if rows["probe_id"].duplicated().any():
        twice = rows.loc[rows["probe_id"].duplicated(), "probe_id"].iloc[0]
        raise SightlineError(f"{what}: probe '{twice}' has more than one row; give the rows of one run")
    return rows.set_index("probe_id")


def table_of(records: list[Record], missing: str) -> pd.DataFrame:
    """The records as a table; ``missing`` says what to run where there are none."""
    if not records:
        raise SightlineError(missing)
    return pd.DataFrame(records)


def on_image_alone(frame: pd.DataFrame) -> pd.Series[bool]:
    """Per row whether nothing but the image was changed, if anything: mask and positions are the plain arm's.

    ``intervention`` names what the arm has behind its plus, or the view that a control set asks about.
    """
    changed = {name: _changes_image_alone(str(name)) for name in frame["intervention"].dropna().unique()}
    return ~frame["intervention"].isin([name for name, alone in changed.items() if not alone])


def _changes_image_alone(intervention: str) -> bool:
    name = intervention.partition("=")[0]
    if name == UNCHANGED:
        return True  # Without asking the registry, whose classes import torch.
    return name not in INTERVENTIONS or INTERVENTIONS.get(name).view != ORIGINAL


def views_of(own: pd.DataFrame, what: str) -> dict[str, pd.DataFrame]:
    """Rows of one plain arm by view of the image, each by probe, without changed masks and swapped positions."""
    views = own[on_image_alone(own)].groupby("view", sort=False)
    return {str(view): indexed(part, f"{what} {view}") for view, part in views}


def margins_of(rows: pd.DataFrame) -> pd.Series[float]:
    """The margins; a scorer other than yes/no gives none."""
    if "margin" not in rows or rows["margin"].isna().all():
        raise SightlineError("the rows have no margin: this table compares margins")
    return rows["margin"].astype(float)


def threshold_of(model: str, threshold: float | Mapping[str, float] | None) -> float | None:
    """The threshold of one model; None stands for the answers that its rows hold."""
    return threshold.get(model) if isinstance(threshold, Mapping) else threshold


def held_threshold(rows: pd.DataFrame) -> float:
    """The threshold at which the rows of one arm hold their answers; 0 unless another was applied."""
    return float(rows["threshold"].iloc[0]) if "threshold" in rows else 0.0


def answered_right(rows: pd.DataFrame, threshold: float | None) -> pd.Series[float]:
    """1 where the answer is right, 0 where not: at the threshold, or without one as the rows hold it."""
    if "margin" not in rows or (threshold is None and "correct" in rows):
        return rows["correct"].astype(float)
    return ((rows["margin"].astype(float) >= (threshold or 0.0)) == (rows["label"] == "yes")).astype(float)


def support(rows: pd.DataFrame) -> pd.Series[float]:
    """Target support: how much the margin speaks for the right answer (+ margin on yes probes, - margin on no)."""
    margin = margins_of(rows)
    return margin.where(rows["label"] == "yes", -margin)


def clustered_mean(
    values: ArrayLike | pd.Series, images: ArrayLike | pd.Series, draws: int, limits: tuple[float, float] = UNLIMITED
) -> Estimate:
    """Mean over rows, resampling images with all their rows; no interval where fewer than two images are left.

    ``limits`` are those of any value, such as -1 and 1 of a change from wrong to right: with them an interval allows
    for an image that was not seen where hardly any image differs.
    """
    (found,) = clustered_means(np.asarray(values, dtype=np.float64)[:, None], images, draws, limits)
    return found


def clustered_means(
    values: FloatArray,
    images: ArrayLike | pd.Series,
    draws: int,
    limits: tuple[float, float] | Sequence[tuple[float, float]] = UNLIMITED,
) -> list[Estimate]:
    """(n, p) values -> ``clustered_mean`` of each column, all from the same draws; limits of all columns or of each."""
    if not len(values):
        return [Estimate(math.nan, math.nan, math.nan, 0, "no rows")] * values.shape[1]
    points = values.mean(axis=0)
    index, _ = numbered(pd.Series(images))
    if not index.any():  # all are number 0
        return [Estimate(float(point), math.nan, math.nan, 0, "fewer than two images") for point in points]
    drawn = mean_draws(values, index, draws, SEED)
    ends = np.broadcast_to(np.asarray(limits, dtype=np.float64), (len(points), 2))
    return [
        interval(column, mean_shares(own, index, (float(low), float(high))))
        for own, column, (low, high) in zip(values.T, drawn.T, ends, strict=True)
    ]


def interval_columns(name: str, estimate: Estimate) -> Record:
    """Three columns: the value and its interval."""
    return {name: estimate.value, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def compare_support(left: pd.DataFrame, right: pd.DataFrame, draws: int = DRAWS) -> Record:
    """Target support of the left rows minus that of the right ones, probe by probe, in all and by label.

    Beside the differences: how often the left is larger, how many answers turned right or wrong, and how many false
    alarms only one side has.
    """
    both = left.index.intersection(right.index)
    if both.empty:
        raise SightlineError("the two sides of a comparison have no probe in common")
    left, right = left.loc[both], right.loc[both]
    difference = support(left) - support(right)
    record: Record = {"n": len(both)}
    for name, chosen in (
        ("support_diff", np.ones(len(both), dtype=bool)),
        ("pos_support_diff", (left["label"] == "yes").to_numpy()),
        ("neg_support_diff", (left["label"] == "no").to_numpy()),
    ):
        record |= interval_columns(name, clustered_mean(difference[chosen], left.loc[chosen, "image_id"], draws))
    alarm_left, alarm_right = ((side["label"] == "no") & (side["predicted"] == "yes") for side in (left, right))
    right_left, right_right = left["correct"].astype(bool), right["correct"].astype(bool)
    return record | {
        "share_left_larger": float((difference > 0).mean()),
        "median_support_diff": float(difference.median()),
        "only_left_correct": int((right_left & ~right_right).sum()),
        "only_right_correct": int((~right_left & right_right).sum()),
        "only_left_false_alarm": int((alarm_left & ~alarm_right).sum()),
        "only_right_false_alarm": int((~alarm_left & alarm_right).sum()),
    }


RATES = ("keep", "accuracy", "hfpr", "pos_ecr", "neg_src", "center_recall", "patch_recall")


def arm_rates(rows: pd.DataFrame) -> Record:
    """Accuracy, false alarms and coverage of one arm's rows; ``ecr`` is that of positives and negatives together."""
    probes = rows.reset_index() if "probe_id" not in rows else rows
    return {"n": len(rows), **arm_points(probes, RATES), "ecr": float(rows["ecr"].astype(float).mean())}


# Arms compared by the scores of their answers in words, benchmark by benchmark and over all of them.

ALL_TASKS = "all"
"""Every benchmark with the same weight, however many questions it has."""
Unit = Literal["example", "image"]
"""What a draw resamples: questions, or images with all their questions."""


class ArmPair(NamedTuple):
    """An arm and the arm it is compared with, as the column ``plain_arm`` names them."""

    arm: str
    reference: str


def rows_in_words(frame: pd.DataFrame) -> pd.DataFrame:
    """The plain rows that have a score, with a ``task`` each; anything else is refused."""
    rows = plain_rows(frame)
    rows = rows[are_in_words(rows)]
    if rows.empty:
        raise SightlineError("no row has an answer in words; run again with --scorer open on open questions")
    rows = rows.assign(arm=rows["plain_arm"])
    tasks = as_names(rows["task"]).fillna("") if "task" in rows else pd.Series("", index=rows.index)
    return rows.assign(task=tasks.where(tasks != "", "qa"), score=rows["score"].astype(float))


def full_arm(rows: pd.DataFrame) -> str:
    """The arm that keeps everything: what score changes are measured from."""
    full = rows.loc[rows["selector"] == "full", "arm"]
    if full.empty:
        raise SightlineError("no full arm, so no score can be said to have changed; amend the run with --arm full")
    return str(full.iloc[0])


def score_changes(
    rows: pd.DataFrame,
    pairs: Sequence[ArmPair],
    *,
    unit: Unit = "example",
    draws: int = EXAMPLE_DRAWS,
    seed: int = SEED,
    flips: bool = False,
) -> Iterator[Record]:
    """One record per benchmark and pair of arms, and one over all benchmarks where there are several.

    ``n`` questions that every arm of the pairs answered; ``score`` and ``reference_score`` are means over them,
    ``change`` their difference with its interval and in ``words``; ``win``, ``loss`` and ``tie`` count questions.
    ``flips`` adds the p-value of a sign-flip test. ``rows`` are ``rows_in_words``.
    """
    wanted = list(dict.fromkeys(arm for pair in pairs for arm in pair))
    parts: dict[str, tuple[pd.DataFrame, ScoreDifferences]] = {}
    for task, own in rows[rows["arm"].isin(wanted)].groupby("task", sort=False):
        scores = _scores(own, wanted, str(task))
        images = own.drop_duplicates("probe_id").set_index("probe_id").loc[scores.index, "image_id"].astype(str)
        found = ScoreDifferences.of(
            _differences(scores, pairs),
            images if unit == "image" else None,
            draws=draws,
            seed=seed,
            purpose=f"{unit}s of {task}",
        )
        parts[str(task)] = scores, found
    if len(parts) > 1:
        means = pd.DataFrame([scores.mean() for scores, _ in parts.values()])
        parts[ALL_TASKS] = means, equally_weighted([found for _, found in parts.values()])
    for task, (scores, found) in parts.items():
        for column, pair in enumerate(pairs):
            change, tally = found.estimate(column), found.tallies[column]
            record: Record = {"task": task, **pair._asdict(), "n": found.n}
            record |= {"score": float(scores[pair.arm].mean()), "reference_score": float(scores[pair.reference].mean())}
            record |= interval_columns("change", change)
            record |= {"win": tally.win, "loss": tally.loss, "tie": tally.tie}
            if flips and task != ALL_TASKS:
                record["p"] = sign_flip_p(_differences(scores, [pair])[:, 0], draws=draws, seed=seed)
            reference = "Full" if pair.reference == "full" else pair.reference
            yield record | {"words": describe_difference(change.value, change.low, change.high, reference)}


def _scores(own: pd.DataFrame, arms: Sequence[str], task: str) -> pd.DataFrame:
    """(questions, arms) scores of the questions that every arm answered, by sorted id."""
    twice = own.duplicated(["arm", "probe_id"])
    if twice.any():
        probe = own.loc[twice, "probe_id"].iloc[0]
        raise SightlineError(f"question '{probe}' has more than one answer of one arm; give the rows of one run")
    scores = own.pivot(index="probe_id", columns="arm", values="score").reindex(columns=list(arms)).dropna()
    if scores.empty:
        raise SightlineError(f"no question of {task} was answered by every arm that is compared")
    return scores.sort_index()


def _differences(scores: pd.DataFrame, pairs: Sequence[ArmPair]) -> FloatArray:
    """(n, p) score of the arm minus score of its reference."""
    return np.stack([(scores[arm] - scores[reference]).to_numpy() for arm, reference in pairs], axis=1)
