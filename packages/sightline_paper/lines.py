"""A printed line, the rows that it is about at their threshold, and the figures that those give.

    LINE = Line(("Qwen", "Target (30%)"), (0.786,), "qwen", "confirmation", "target:0.3")
    cells(summary_of(study, LINE, NAMES), NAMES)    # measured, with its image-cluster interval
    paired(study, LINE, "full", "accuracy")         # minus another arm, image by image

Open questions have scores instead of answers to yes or no: ``compared`` sets two arms beside one another.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd

from sightline.analysis.comparison import ArmPair, rows_in_words, score_changes
from sightline.answering.answer_scores import light_soft_accuracy
from sightline.core.table import MINUS, MISSING
from sightline.errors import SightlineError
from sightline.probes.probe_file import Side, hash_side
from sightline.rows.source import refuse_shared
from sightline.rows.thresholds import apply_thresholds
from sightline.statistics.arm_rows import plain_rows
from sightline.statistics.intervals import LEVEL
from sightline.statistics.summaries import paired_differences
from sightline.statistics.thresholds import accuracy_optimal
from sightline_paper.models import INTERNVL
from sightline_paper.needs import Need
from sightline_paper.probe_sets import DEVELOPMENT
from sightline_paper.study import Study


@dataclass(frozen=True)
class Measured:
    """One measured cell: a number with its interval if it has one, or words."""

    value: float | str | None
    low: float = math.nan
    high: float = math.nan


NOTHING = Measured(None)


@dataclass(frozen=True)
class Threshold:
    """A rule for where the margin is cut, and the rows that it is chosen on.

    InternVL has no second probe set: half of its images, by a hash of their ids, choose the threshold and the other
    half are judged (464 and 536 probes of 1,000). Qwen and LLaVA choose on the development set.
    """

    rule: str = ""
    """``full``: Full's most accurate threshold for every arm; ``own``: each arm's own; an arm: that arm's for all
    (``target:0.5`` is what the paper calls risk-constrained: the one threshold of its InternVL controls is Target's own
    at 50 %); nothing: t = 0, the likelihood's own decision."""
    probes: str = DEVELOPMENT
    """Where Qwen and LLaVA choose."""

    @property
    def arms(self) -> tuple[str, ...]:
        """Arms whose development rows the rule looks at, beside those that are judged."""
        return {"": (), "own": (), "full": ("full",)}.get(self.rule, (self.rule,))


AT_ZERO, SHARED = Threshold(), Threshold("full")
RULES = {"full": "full-dev", "own": "own-dev"}
"""As ``--threshold`` spells them."""


@dataclass(frozen=True)
class Line:
    """One printed line: its words, its published cells, and what it is about."""

    words: tuple[str, ...]
    """Cells of the text columns."""
    published: tuple[float | str | Measured | None, ...]
    """Cells of the other columns as the paper prints them, some with an interval; None for a dash."""
    model: str = ""
    probes: str = ""
    arm: str = ""
    panel: str = ""
    box_source: str = "annotation"
    threshold: Threshold = AT_ZERO
    scorer: str = ""
    """What an answer is, where it is not what the probe set is usually asked for."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else its measure wants to know: the arm that it is compared with (``minus``), several ``arms``, ..."""


def usual_needs(line: Line) -> list[Need]:
    """The rows of the line's arm, or of all its arms, of what it is compared with, and those that choose thresholds."""
    if not line.model:
        return []
    found = []
    arms = (*line.about.get("arms", (line.arm,)), line.about.get("minus"))
    for arm in filter(None, arms):
        found.append(Need(line.model, line.probes, (arm,), line.box_source, line.scorer))
        if line.threshold.rule:
            where = DEVELOPMENT if line.model == INTERNVL else line.threshold.probes
            found.append(Need(line.model, where, line.threshold.arms or (arm.partition("+")[0],)))
    return found


# Rows at a threshold.


def rows_of(study: Study, line: Line) -> pd.DataFrame:
    """All arms of the line's run with their answers at its threshold; margins stay as they were recorded.

    InternVL's rows on development images are those of the held-out ones, whatever the rule: its tables are about them.
    """
    model, probes, threshold = line.model, line.probes, line.threshold
    return study.remembered(
        ("at threshold", model, probes, threshold, line.box_source, line.scorer),
        lambda: rows_at(study, model, probes, threshold, line.box_source, line.scorer),
    )


def rows_at(
    study: Study, model: str, probes: str, threshold: Threshold, box_source: str = "annotation", scorer: str = ""
) -> pd.DataFrame:
    """What ``rows_of`` remembers."""
    rows = study.rows(model, probes, box_source, scorer)
    if model == INTERNVL and probes.startswith(DEVELOPMENT):
        rows = on_side(rows, "test")
    if not threshold.rule:
        return rows
    chosen_on = DEVELOPMENT if model == INTERNVL else threshold.probes
    development = study.rows(model, chosen_on)
    if model == INTERNVL:
        development = on_side(development, "dev")
    elif chosen_on != probes:
        refuse_shared(study.run(model, chosen_on), development, study.run(model, probes, box_source, scorer), rows)
    if threshold.rule in RULES:
        return apply_thresholds(rows, development, RULES[threshold.rule]).rows
    arm = study.arm(model, threshold.rule)
    own = plain_rows(development[development["arm"] == arm])
    if own.empty:
        raise SightlineError(f"no development rows of {threshold.rule} to choose a threshold on")
    return apply_thresholds(rows, None, accuracy_optimal(own["label"] == "yes", own["margin"]).threshold).rows


def on_side(rows: pd.DataFrame, side: Side) -> pd.DataFrame:
    """The rows whose image falls on one side of the grouped hash split."""
    found: pd.DataFrame = rows[rows["image_id"].astype(str).map(hash_side) == side]
    if found.empty:
        raise SightlineError(f"the hash split leaves its {side} side without images; take more of them")
    return found


def own_rows(study: Study, rows: pd.DataFrame, model: str, arm: str) -> pd.DataFrame:
    """Those of one arm; refused where it has not been measured."""
    own: pd.DataFrame = rows[rows["arm"] == study.arm(model, arm)]
    if own.empty:
        raise SightlineError(f"{arm} has not been measured")
    return own


# Answers to yes or no: metrics of an arm, and differences between two.


def summary_of(study: Study, line: Line, names: Sequence[str]) -> Any:
    """The line's arm in ``arm_summary`` at its threshold; refused where it has not been measured."""
    key = (line.model, line.probes, line.box_source, line.scorer, line.threshold)
    return study.summary(rows_of(study, line), study.arm(line.model, line.arm), tuple(names), key)


def cell(found: Any, name: str) -> Measured:
    """A figure of a record with the ends of its interval: ``x``, ``x_low``, ``x_high``."""
    return Measured(*(float(found[f"{name}{end}"]) for end in ("", "_low", "_high")))


def cells(found: Any, names: Iterable[str]) -> list[Measured]:
    return [cell(found, name) for name in names]


def paired(study: Study, line: Line, minus: str | Line, metric: str, level: float = LEVEL) -> Measured:
    """The line's arm minus another in one metric, with its paired image-cluster interval."""
    other = minus if isinstance(minus, Line) else replace(line, arm=minus)
    parts = []
    for side, name in ((line, "this"), (other, "that")):
        rows = rows_of(study, side)
        own = rows[rows["arm"] == study.arm(side.model, side.arm)]
        if own.empty:
            raise SightlineError(f"{line.arm} and {other.arm} have not both been measured")
        parts.append(own.assign(arm=name, plain_arm=name))
    return paired_rows(study, pd.concat(parts, ignore_index=True), "that", metric, level)


def paired_rows(study: Study, rows: pd.DataFrame, minus: str, metric: str, level: float = LEVEL) -> Measured:
    """The one other arm of these rows minus the named one."""
    found = paired_differences(rows, minus, metrics=[metric], draws=study.options.draws, level=level).iloc[0]
    return Measured(float(found["diff"]), float(found["low"]), float(found["high"]))


# Answers in words: two arms of a model on the same questions, by a rule that scores answers.

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


def ends(low: float, high: float, digits: int = 4) -> str:
    """An interval, usually with the four digits that the paper prints of scores; a dash where there is none."""
    return MISSING if math.isnan(low) else f"[{low:+.{digits}f}, {high:+.{digits}f}]".replace("-", MINUS)


def by_rule(study: Study, model: str, probes: str, rule: str = "", box_source: str = "annotation") -> pd.DataFrame:
    """Rows of a set of open questions, ``score`` by a rule: the benchmark's own, a column of rows, or the artifact's.

    The artifact strips punctuation before ANLS, and compares TextVQA's answers after lighter processing than the
    official one; other benchmarks have one form. Its profile scores by these wherever no rule is named.
    """
    rule = rule or (ARTIFACT if study.options.profile == "artifact" else "score")
    return study.remembered(
        ("by rule", model, probes, rule, box_source), lambda: _by_rule(study, model, probes, rule, box_source)
    )


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
            change=cell(found, "change"),
            tally="/".join(str(found[name]) for name in ("win", "loss", "tie")),
            p=float(found.get("p", math.nan)),
        )

    return study.remembered(("compared", model, probes, pair, rule, flips), make)
