"""Answers in words as tables compare them: two arms of a model on the same questions, by a rule that scores answers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from sightline.analysis.comparison import ArmPair, rows_in_words, score_changes
from sightline.answering.answer_scores import light_soft_accuracy
from sightline.core.table import MINUS, MISSING, format_value
from sightline.errors import SightlineError
from sightline.paper.needs import Need
from sightline.paper.paper_table import Claim, Judgement, Measured, Side, judgement

if TYPE_CHECKING:
    from sightline.paper.study import Study

ARTIFACT = "artifact"
"""The forms of scores behind the published figures: see ``by_rule``."""


@dataclass(frozen=True)
class Compared:
    """One arm beside another over the ``n`` questions that both answered."""

    n: int
    keep: float
    """Kept share of tokens, mean over the arm's questions."""
    score: float
    reference: float
    change: Measured
    """score - reference, questions resampled."""
    tally: str
    """Questions on which the arm scored higher, lower, the same: ``183/1269/3548``."""
    p: float
    """Of a sign-flip test; not a number where none was asked for."""

    @property
    def interval(self) -> Measured:
        return Measured(ends(self.change.low, self.change.high))


def ends(low: float, high: float) -> str:
    """An interval with the four digits that the paper prints; a dash where there is none."""
    return MISSING if math.isnan(low) else f"[{low:+.4f}, {high:+.4f}]".replace("-", MINUS)


def by_rule(study: Study, model: str, probes: str, rule: str = "", box_source: str = "annotation") -> pd.DataFrame:
    """Rows of a set of open questions, ``score`` by a rule: the benchmark's own, a column of rows, or the artifact's.

    The artifact strips punctuation before ANLS, and compares TextVQA's answers after lighter processing than the
    official one; other benchmarks have one form. Its profile scores by these wherever no rule is named.
    """
    rule = rule or (ARTIFACT if study.options.profile == "artifact" else "score")
    found: pd.DataFrame = study.remembered(
        ("by rule", model, probes, rule, box_source), lambda: _by_rule(study, model, probes, rule, box_source)
    )
    return found


def _by_rule(study: Study, model: str, probes: str, rule: str, box_source: str) -> pd.DataFrame:
    rows = rows_in_words(study.rows(model, probes, box_source))
    if rule != ARTIFACT:
        return rows.assign(score=rows[rule].astype(float))
    accepted = {str(probe["id"]): probe["answers"] for probe in study.run(model, probes, box_source).probes}
    light = rows.apply(lambda row: light_soft_accuracy(row["answer"], accepted[row["probe_id"]]), axis=1)
    forms = {"textvqa": light, "docvqa": rows["anls_stripped"]}
    scores = rows["score"]
    for task, form in forms.items():
        scores = scores.where(rows["task"] != task, form)
    return rows.assign(score=scores.astype(float))


def compared(
    study: Study, model: str, probes: str, arm: str, minus: str, *, rule: str = "", flips: bool = False
) -> Compared:
    """An arm beside another; refused where not both were measured. ``flips`` adds a sign-flip test."""
    rows = by_rule(study, model, probes, rule)
    pair = ArmPair(study.arm(model, arm), study.arm(model, minus))
    both = rows[rows["arm"].isin(pair)]
    if both["arm"].nunique() < 2:
        raise SightlineError(f"{arm} and {minus} have not both been measured")

    def make() -> Compared:
        (found,) = score_changes(both, [pair], draws=study.options.example_draws, flips=flips)
        return Compared(
            n=int(found["n"]),
            keep=float(both.loc[both["arm"] == pair.arm, "keep"].mean()),
            score=float(found["score"]),
            reference=float(found["reference_score"]),
            change=Measured(*(float(found[name]) for name in ("change", "change_low", "change_high"))),
            tally="/".join(str(found[name]) for name in ("win", "loss", "tie")),
            p=float(found.get("p", math.nan)),
        )

    made: Compared = study.remembered(("compared", model, probes, pair, rule, flips), make)
    return made


def score_difference(
    sentence: str, *, model: str, probes: str, arm: str, minus: str, expects: Side, rule: str = ""
) -> Claim:
    """A claim about the scores of two arms on the same questions."""

    def decide(study: Study) -> Judgement:
        found = compared(study, model, probes, arm, minus, rule=rule).change
        change = f"{format_value(found.value, 'signed')} {ends(found.low, found.high)}"
        return judgement(found, f"{rule or 'score'} of {arm} minus {minus}: {change}", expects)

    return Claim(sentence, decide, (Need(model, probes, (arm, minus)),))
