"""Table S23: hard questions, other boxes, and boxes that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from sightline.analysis.regions import stress_slices
from sightline.boxes.quality import AdjustedCoverage, adjusted_coverage, noisy_regions
from sightline.core.probe import Probe
from sightline.core.table import TableColumn
from sightline.errors import SightlineError
from sightline.paper.case_regions import (
    Regions,
    answer_words,
    audited,
    boxes_of,
    cases_of_task,
    external_boxes,
    line_context,
    shown,
    size_of_images,
    with_regions,
)
from sightline.paper.models import QWEN
from sightline.paper.needs import Need
from sightline.paper.open_cases import CHOICES, KEPT, NEEDS, OUTCOME, open_rows, open_runs
from sightline.paper.open_sets import DOCVQA, TEXTVQA
from sightline.paper.paper_table import PAPER_TABLES, Block, Claim, Judgement, Line, Measured, PaperTable
from sightline.paper.tables.shared import COUNT
from sightline.paper.tables.table_s22 import coverage_cells
from sightline.rows.picture import Boxes

if TYPE_CHECKING:
    from sightline.paper.study import Study

SEVENTY = KEPT["70%"]
CLEAN, JITTER, DROPPED = "clean", "jitter_25pct", "drop_40pct"


class Slice(NamedTuple):
    """A stress tag on one benchmark."""

    tag: str
    task: str


class BoxKind(NamedTuple):
    """Boxes of one task's cases, from one source."""

    words: str
    task: str
    find: Callable[[Study, Sequence[Probe]], Regions]


class NoisyCases(NamedTuple):
    """Cases of one choice whose audit boxes were damaged."""

    how: str
    boxes: BoxKind
    variant: str = CLEAN


GIVEN = BoxKind("TextVQA external GT boxes", TEXTVQA, external_boxes)
ANSWER_TOKENS = BoxKind("DocVQA answer-token boxes", DOCVQA, answer_words)
CONTEXT = BoxKind("DocVQA line-context boxes", DOCVQA, line_context)

STRESS = (
    Line(("TextVQA numeric answers", "30% loses much, 70% little"), (142, 0.850, 0.548, None, 0.780, None), QWEN,
         about=Slice("numeric answer", TEXTVQA)),
    Line(("DocVQA long questions", "long questions need more tokens"), (168, 0.946, 0.473, None, 0.849, None), QWEN,
         about=Slice("long question", DOCVQA)),
    Line(("DocVQA multi-token answers", "long answers stay hard"), (224, 0.947, 0.520, None, 0.875, None), QWEN,
         about=Slice("multi-token answer", DOCVQA)),
)  # fmt: skip
READINGS = {
    GIVEN.words: "a single region is mostly kept",
    ANSWER_TOKENS.words: "spans are kept at higher budgets",
    CONTEXT.words: "several regions are harder",
    JITTER: "a little off does little",
    DROPPED: "missing boxes cost most",
}
"""How the paper reads its lines, in our words, by boxes and by damage."""
BOXES = {GIVEN: (47, 0.677, 0.851), ANSWER_TOKENS: (47, 0.687, 0.511), CONTEXT: (47, 0.773, 0.298)}
NOISE = {
    ("TextVQA 25% coordinate jitter", GIVEN, JITTER): (47, 0.677, None, None, 0.673),
    ("DocVQA 25% coordinate jitter", CONTEXT, JITTER): (47, 0.773, None, None, 0.766),
    ("TextVQA 40% box dropout", GIVEN, DROPPED): (47, 0.677, None, None, 0.299),
    ("DocVQA 40% box dropout", CONTEXT, DROPPED): (47, 0.773, None, None, 0.442),
}


def stressed(study: Study, line: Line) -> list[Measured]:
    """The questions with a tag: how many, Full's score, and each budget's with its change."""
    slices: pd.DataFrame = study.remembered(
        "stress slices",
        lambda: stress_slices(
            open_rows(study),
            [probe for run in open_runs(study).values() for probe in run.probes],
            draws=study.options.example_draws,
        ),
    )
    own = slices[(slices["slice"] == line.about.tag) & (slices["task"] == line.about.task)].set_index("arm")
    if own.empty:
        raise SightlineError(f"no question is a {line.about.tag} of {line.about.task}")
    found = [own.loc[study.arm(line.model, KEPT[kept])] for kept in ("30%", "70%")]
    scores = [
        cell
        for each in found
        for cell in (Measured(each["score"]), Measured(each["change"], each["change_low"], each["change_high"]))
    ]
    return [Measured(float(found[0]["n"])), Measured(found[0]["full_score"]), *scores]


def boxes_covered(study: Study, line: Line) -> list[Measured]:
    """Coverage of one kind of boxes by the masks of 70 %."""
    own = _covered(study, boxes_of(_regions(study, line.about)))
    return [Measured(float(len(own))), *coverage_cells(own, study.options.example_draws, ("ecr", "all_half"))]


def noise_adjusted(study: Study, line: Line) -> list[Measured]:
    """Coverage of clean boxes, of what damage leaves of them, and the latter times the share of boxes left."""
    clean = _covered(study, boxes_of(_regions(study, line.about)))
    found = _noisy(study, line.about)
    values = (clean["ecr"].mean(), found.coverage, found.retention, found.adjusted)
    return [Measured(float(found.probes)), *(Measured(float(value)) for value in values)]


def _regions(study: Study, about: NoisyCases) -> Regions:
    found: Regions = study.remembered(
        ("boxes", about.how, about.boxes),
        lambda: about.boxes.find(study, cases_of_task(study, about.how, about.boxes.task)),
    )
    return found


def _covered(study: Study, regions: Mapping[str, Boxes]) -> pd.DataFrame:
    """Rows of 70 %, their coverage that of these regions."""
    rows = audited(study, regions)
    return rows[rows["arm"] == study.arm(QWEN, SEVENTY)]


def _noisy(study: Study, about: NoisyCases) -> AdjustedCoverage:
    """Damage is drawn over the cases of one task, in the order of its questions."""
    task = about.boxes.task
    probes = with_regions(cases_of_task(study, about.how, task), _regions(study, about))
    if not probes:
        raise SightlineError(f"none of the cases of {task} has a region")
    noisy = noisy_regions(probes, about.variant, shown(size_of_images(study, task)))
    left = {probe.id: probe.regions for probe in noisy if probe.regions}
    rows = _covered(study, left) if left else pd.DataFrame({"probe_id": [], "ecr": []})
    return adjusted_coverage(noisy, dict(zip(rows["probe_id"].astype(str), rows["ecr"], strict=True)))[task]


def needs(line: Line) -> list[Need]:
    return list(NEEDS)


def _box_lines(how: str) -> tuple[Line, ...]:
    return tuple(
        Line(
            (kind.words, READINGS[kind.words] if how == OUTCOME else ""),
            published if how == OUTCOME else (None,) * 3,
            QWEN,
            how,
            about=NoisyCases(how, kind),
        )
        for kind, published in BOXES.items()
    )


def _noise_lines(how: str) -> tuple[Line, ...]:
    return tuple(
        Line(
            (words, READINGS[variant] if how == OUTCOME else ""),
            published if how == OUTCOME else (None,) * 5,
            QWEN,
            how,
            about=NoisyCases(how, kind, variant),
        )
        for (words, kind, variant), published in NOISE.items()
    )


def _missing_is_worse(study: Study) -> Judgement:
    words, worse = [], []
    for kind in (GIVEN, CONTEXT):
        jitter, dropped = (_noisy(study, NoisyCases(OUTCOME, kind, variant)).adjusted for variant in (JITTER, DROPPED))
        words.append(f"{kind.task}: {jitter:.3f} under jitter, {dropped:.3f} under dropout")
        worse.append(dropped < jitter)
    return Judgement("holds" if all(worse) else "fails", "; ".join(words))


@PAPER_TABLES.register("S23")
class StressAndBoxes(PaperTable):
    number = "S23"
    title = "Hard questions, other boxes, wrong boxes"
    about = (
        "Qwen Target+Grid. Stress slices are questions of TextVQA-500 and DocVQA-500 by accuracy and ANLS. Boxes and "
        "noise are about the cases of S22 that have such boxes, which in the paper were chosen by outcome, at 70 %; "
        "no selector was shown any of them. Noise damages the audit's boxes alone. Adjusted ECR is the coverage of "
        "the boxes that are left times the share that is left: under dropout that share is most of it."
    )
    blocks = (
        Block(
            ("Stress slice", "The paper's reading"),
            (
                COUNT,
                TableColumn("full", "Full", "score"),
                TableColumn("score_30", "30%", "score"),
                TableColumn("change_30", "Δ 30%", "signed", interval=True),
                TableColumn("score_70", "70%", "score"),
                TableColumn("change_70", "Δ 70%", "signed", interval=True),
            ),
            STRESS,
            stressed,
            needs,
            title="Hard questions: score with the full prefix and pruned",
        ),
        *(
            Block(
                ("Boxes", "The paper's reading"),
                (
                    COUNT,
                    TableColumn("ecr", "ECR", "score", interval=True),
                    TableColumn("all_half", "All ≥ 0.50", "score", interval=True),
                ),
                _box_lines(how),
                boxes_covered,
                needs,
                title=f"Other boxes at 70%. {title}",
            )
            for how, title in CHOICES.items()
        ),
        *(
            Block(
                ("Noise", "The paper's reading"),
                (
                    COUNT,
                    TableColumn("clean", "Reference ECR", "score"),
                    TableColumn("noisy", "ECR of what is left", "score"),
                    TableColumn("left", "Boxes left", "score"),
                    TableColumn("adjusted", "Adjusted ECR", "score"),
                ),
                _noise_lines(how),
                noise_adjusted,
                needs,
                title=f"Wrong boxes at 70%. {title}",
            )
            for how, title in CHOICES.items()
        ),
    )
    claims = (
        Claim("Missing boxes lower adjusted coverage more than boxes that are a little off.", _missing_is_worse, NEEDS),
    )
