"""Arms compared by the scores of their answers in words, benchmark by benchmark and over all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from sightline.analysis.comparison import Record, interval_columns
from sightline.errors import SightlineError
from sightline.statistics.arrays import FloatArray
from sightline.statistics.bootstrap import SEED
from sightline.statistics.keyed import as_names
from sightline.statistics.paired_scores import EXAMPLE_DRAWS, ScoreDifferences, equally_weighted, sign_flip_p
from sightline.statistics.plain_rows import are_in_words, plain_rows
from sightline.statistics.wording import describe_difference

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
            yield record | {"words": describe_difference(change.value, change.low, change.high, _name(pair.reference))}


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


def _name(arm: str) -> str:
    return "Full" if arm == "full" else arm
