"""How tables about open questions are measured: scores of answers, and what masks leave of their evidence.

The files of S19 to S24 name these functions, as others name those of ``measures``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

from sightline.analysis.comparison import ALL_TASKS, ArmPair, clustered_mean, score_changes
from sightline.analysis.regions import DrawnTwice, drawn_twice, region_agreement, role_agreement, stress_slices
from sightline.boxes.quality import AdjustedCoverage, adjusted_coverage, noisy_regions
from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.report.sections.region_coverage import coverage_and_score_frame
from sightline.rows.picture import Boxes
from sightline_paper.cases import (
    FULL,
    KEPT,
    OUTCOME,
    Regions,
    answer_words,
    audited,
    both_annotators,
    boxes_of,
    case_ids,
    cases_of_task,
    external_boxes,
    line_context,
    open_rows,
    open_runs,
    question_key,
    several_regions,
    shown,
    size_of_images,
    with_regions,
)
from sightline_paper.claims import Judgement, interval_words, judgement
from sightline_paper.lines import NOTHING, Line, Measured, by_rule, cell, cells, compared
from sightline_paper.models import QWEN
from sightline_paper.open_sets import DOCVQA, TEXTVQA
from sightline_paper.study import DETECTOR, Study

# Two arms on the same questions: S19, S20, S21.


def generated(study: Study, line: Line) -> list[Measured]:
    """Full and pruned by two rules with their paired differences, then pruned by a third."""
    exact, anls, contains = (
        compared(study, line.model, line.probes, line.arm, FULL, rule=rule) for rule in ("exact", "anls", "contains")
    )
    return [
        Measured(exact.n),
        Measured(exact.keep),
        *(cell for each in (exact, anls) for cell in (Measured(each.reference), Measured(each.score), each.change)),
        Measured(contains.score),
    ]


def by_other_rules(study: Study, line: Line) -> list[Measured]:
    rules = ("anls_stripped", "ocrbench")
    found = [compared(study, line.model, line.probes, line.arm, FULL, rule=rule) for rule in rules]
    return [cell for each in found for cell in (Measured(each.reference), Measured(each.score))]


def against_full(study: Study, line: Line) -> list[Measured]:
    """The arm beside ``minus``, by the benchmark's own rule or by ``rule``."""
    rule = line.about.get("rule", "")
    found = compared(study, line.model, line.probes, line.arm, line.about["minus"], rule=rule)
    levels = (found.n, found.keep, found.reference, found.score)
    return [*map(Measured, levels), found.change, found.interval, Measured(found.tally)]


def change_alone(study: Study, line: Line) -> list[Measured]:
    """Change, interval and tally."""
    return against_full(study, line)[-3:]


def matched(study: Study, line: Line) -> list[Measured]:
    """Scores of all arms, then the query-guided one minus each of ``controls``; nothing for one that is not there."""
    found = [compared(study, line.model, line.probes, line.arm, control) for control in line.about["controls"]]
    lacking = [NOTHING] * (3 - len(found))
    scores = [Measured(each.reference) for each in found]
    changes = [cell for each in found for cell in (each.change, each.interval)]
    return [Measured(found[0].keep), Measured(found[0].score), *scores, *lacking, *changes, *lacking, *lacking]


def focus_words(study: Study, line: Line) -> list[Measured]:
    found = compared(study, line.model, line.probes, line.arm, line.about["minus"], flips=True)
    levels = (found.n, found.reference, found.score)
    return [*map(Measured, levels), found.change, found.interval, Measured(found.p), Measured(found.tally)]


# What masks leave of several regions: S22.

UNMOVED = "no score changed"


def case_rows(study: Study, how: str, task: str = ALL_TASKS) -> pd.DataFrame:
    """The rows of the cases of one choice that have regions, with their coverage."""
    rows = study.remembered(("case rows", how), lambda: audited(study, boxes_of(several_regions(study, how))))
    return rows if task == ALL_TASKS else rows[rows["task"] == task]


def _coverage(own: pd.DataFrame, draws: int, *names: str) -> list[Measured]:
    """Means over questions, resampling images."""
    if own.empty:
        raise SightlineError("none of the cases has a region")
    found = [clustered_mean(own[name], own["image_id"], draws) for name in names]
    return [Measured(each.value, each.low, each.high) for each in found]


def kept_of_all_regions(study: Study, line: Line) -> list[Measured]:
    """Coverage of the arm's masks over questions; its score and Full's with every benchmark weighing the same."""
    rows, draws = case_rows(study, line.probes, line.about["task"]), study.options.example_draws
    arm, full = (study.arm(line.model, each) for each in (line.arm, FULL))
    own = rows[rows["arm"] == arm]
    coverage = _coverage(own, draws, "ecr", "worst_region", "all_half")
    *_, change = score_changes(rows, [ArmPair(arm, full)], draws=draws)  # over all benchmarks, or the only one
    return [Measured(float(len(own))), *coverage, Measured(change["score"]), *cells(change, ["change"])]


def _associations(study: Study, how: str) -> dict[str, Any]:
    """Records of ``coverage_and_score_frame`` by kind of coverage."""
    draws = study.options.draws
    key = ("coverage and score", how)
    found = study.remembered(key, lambda: coverage_and_score_frame(case_rows(study, how), draws=draws))
    return {str(record["coverage"]): record for record in found.to_dict("records")}


def coverage_and_score(study: Study, line: Line) -> list[Measured]:
    """Spearman's rho of one kind of coverage with the change of score, over questions at budgets."""
    found = _associations(study, line.probes)[line.about["coverage"]]
    return [Measured(float(found["n"])), Measured(UNMOVED) if math.isnan(found["rho"]) else cells(found, ["rho"])[0]]


def worst_says_more(study: Study, line: Line) -> Judgement:
    found = _associations(study, line.probes)["worst region"]
    if math.isnan(found["advantage"]):
        return Judgement("open", UNMOVED)
    gain = cell(found, "advantage")
    return judgement(gain, f"rho of the worst region minus that of the union: {interval_words(gain)}")


def _drawn_twice(study: Study) -> list[DrawnTwice]:
    return study.remembered("drawn twice", lambda: drawn_twice(*both_annotators(study)))


def annotators(study: Study, line: Line) -> list[Measured]:
    """Agreement of two people about the regions of a ``task``."""
    task = line.about["task"]
    rows = [row for row in _drawn_twice(study) if task in (ALL_TASKS, question_key(row.first.sample_id)[0])]
    return [Measured(float(value)) for value in region_agreement(rows).values()]


def roles(study: Study, line: Line) -> list[Measured]:
    found = role_agreement(_drawn_twice(study))[line.about["role"]]
    return [Measured(float(value)) for value in (found.first, found.second, found.both, found.f1)]


# Hard questions, other boxes and wrong boxes: S23.


class BoxKind(NamedTuple):
    """Boxes of one task's cases, from one source."""

    task: str
    find: Callable[[Study, Sequence[Probe]], Regions]


BOXES = {
    "answer_boxes": BoxKind(TEXTVQA, external_boxes),
    "answer_words": BoxKind(DOCVQA, answer_words),
    "line_context": BoxKind(DOCVQA, line_context),
}
"""What ``boxes`` of a line may be."""
JITTER, DROPPED = "jitter_25pct", "drop_40pct"


def stressed(study: Study, line: Line) -> list[Measured]:
    """The questions of a ``task`` with a ``tag``: how many, Full's score, and each budget's with its change."""

    def make() -> pd.DataFrame:
        probes = [probe for run in open_runs(study).values() for probe in run.probes]
        return stress_slices(open_rows(study), probes, draws=study.options.example_draws)

    slices = study.remembered("stress slices", make)
    tag, task = line.about["tag"], line.about["task"]
    own = slices[(slices["slice"] == tag) & (slices["task"] == task)].set_index("arm")
    if own.empty:
        raise SightlineError(f"no question is a {tag} of {task}")
    found = [own.loc[study.arm(line.model, KEPT[kept])] for kept in ("30%", "70%")]
    scores = [cell for each in found for cell in (Measured(each["score"]), *cells(each, ["change"]))]
    return [Measured(float(found[0]["n"])), Measured(found[0]["full_score"]), *scores]


def boxes_covered(study: Study, line: Line) -> list[Measured]:
    """Coverage of one kind of boxes by the masks of 70 %."""
    own = _covered(study, boxes_of(_case_boxes(study, line.probes, line.about["boxes"])))
    return [Measured(float(len(own))), *_coverage(own, study.options.example_draws, "ecr", "all_half")]


def noise_adjusted(study: Study, line: Line) -> list[Measured]:
    """Coverage of clean boxes, of what ``damage`` leaves of them, and the latter times the share of boxes left."""
    how, boxes = line.probes, line.about["boxes"]
    clean = _covered(study, boxes_of(_case_boxes(study, how, boxes)))
    found = _damaged(study, how, boxes, line.about["damage"])
    values = (clean["ecr"].mean(), found.coverage, found.retention, found.adjusted)
    return [Measured(float(found.probes)), *(Measured(float(value)) for value in values)]


def missing_is_worse(study: Study, line: Line) -> Judgement:
    words, worse = [], []
    for boxes in ("answer_boxes", "line_context"):
        jitter, dropped = (_damaged(study, OUTCOME, boxes, damage).adjusted for damage in (JITTER, DROPPED))
        words.append(f"{BOXES[boxes].task}: {jitter:.3f} under jitter, {dropped:.3f} under dropout")
        worse.append(dropped < jitter)
    return Judgement("holds" if all(worse) else "fails", "; ".join(words))


def _case_boxes(study: Study, how: str, boxes: str) -> Regions:
    kind = BOXES[boxes]
    return study.remembered(("boxes", how, boxes), lambda: kind.find(study, cases_of_task(study, how, kind.task)))


def _covered(study: Study, regions: Mapping[str, Boxes]) -> pd.DataFrame:
    """Rows of 70 %, their coverage that of these regions."""
    rows = audited(study, regions)
    return rows[rows["arm"] == study.arm(QWEN, KEPT["70%"])]


def _damaged(study: Study, how: str, boxes: str, damage: str) -> AdjustedCoverage:
    """Damage is drawn over the cases of one task, in the order of its questions."""
    task = BOXES[boxes].task
    probes = with_regions(cases_of_task(study, how, task), _case_boxes(study, how, boxes))
    if not probes:
        raise SightlineError(f"none of the cases of {task} has a region")
    noisy = noisy_regions(probes, damage, shown(size_of_images(study, task)))
    left = {probe.id: probe.regions for probe in noisy if probe.regions}
    rows = _covered(study, left) if left else pd.DataFrame({"probe_id": [], "ecr": []})
    return adjusted_coverage(noisy, dict(zip(rows["probe_id"].astype(str), rows["ecr"], strict=True)))[task]


# A text detector's boxes as a soft prior for the selector: S24.

GRID, TARGET, SOFT = KEPT["70%"], "target:0.7", "soft_evidence:0.7:beta=0.1"
BASE, METADATA, NO_PRIOR, OCR = "base grid", "metadata grid", "same rule without boxes", "OCR soft"
"""Grid on the original images; on the exported ones Grid, Target, and Target with the boxes' prior."""
PAIRS = (ArmPair(OCR, BASE), ArmPair(OCR, METADATA), ArmPair(OCR, NO_PRIOR), ArmPair(BASE, FULL))


def _case_scores(study: Study, how: str) -> tuple[pd.DataFrame, dict[str, int]]:
    """Scores of the cases under all arms, and how many boxes the detector showed on each."""
    case_ids(study, how)  # says why, where nothing could be chosen
    run = study.run(QWEN, how, DETECTOR)
    boxes = {str(probe["id"]): len(probe.get("boxes") or ()) for probe in run.probes}
    parts = []
    for rows, names in (
        (open_rows(study), {FULL: FULL, GRID: BASE}),
        (by_rule(study, QWEN, how, box_source=DETECTOR), {GRID: METADATA, TARGET: NO_PRIOR, SOFT: OCR}),
    ):
        arms = {study.arm(QWEN, arm): name for arm, name in names.items()}
        own = rows[rows["arm"].isin(arms) & rows["probe_id"].isin(boxes)]
        parts.append(own.assign(arm=own["arm"].map(arms))[["probe_id", "image_id", "task", "arm", "score"]])
    return pd.concat(parts, ignore_index=True), boxes


def detector_in_loop(study: Study, line: Line) -> list[Measured]:
    """Scores of the cases of a ``task`` under every arm, the prior minus each of the others, and boxes per question.

    ``with_boxes``: of questions alone on which the detector found any.
    """
    rows, boxes = study.remembered(("case scores", line.probes), lambda: _case_scores(study, line.probes))
    if line.about["task"] != ALL_TASKS:
        rows = rows[rows["task"] == line.about["task"]]
    if line.about["with_boxes"]:
        rows = rows[rows["probe_id"].map(boxes) > 0]
    if rows.empty:
        raise SightlineError("the detector found no box on any case")
    records = list(score_changes(rows, PAIRS, draws=study.options.example_draws))
    *changes, of_full = ([each for each in records if (each["arm"], each["reference"]) == pair][-1] for pair in PAIRS)
    base, metadata, no_prior = changes
    scores = (of_full["reference_score"], base["reference_score"], base["score"])
    controls = (each["reference_score"] for each in (metadata, no_prior))
    counts = [boxes[probe] for probe in rows["probe_id"].unique()]
    return [
        Measured(float(base["n"])),
        *map(Measured, (*scores, *controls)),
        *(cell for each in changes for cell in cells(each, ["change"])),
        Measured(sum(counts) / len(counts)),
        Measured(float(sum(count > 0 for count in counts))),
    ]
