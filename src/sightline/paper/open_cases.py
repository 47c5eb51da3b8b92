"""The open questions that tables S22 to S24 look at closely: 48 of TextVQA's and 48 of DocVQA's 500, in two choices.

``cases-by-outcome`` repeats the paper's choice from this study's own rows, ``cases-by-lot`` is a stratified sample of
the same size. Both are ordinary probe sets, with their images as people see them who draw regions: RGB, no side above
1600 pixels, JPEG.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import pandas as pd

from sightline.analysis.regions import stress_tags
from sightline.core.probe import Probe
from sightline.paper.case_sampling import STRATIFIED_SEED, OpenCase, cases_of, chosen_by_outcome, stratified_sample
from sightline.paper.models import QWEN
from sightline.paper.needs import Need
from sightline.paper.open_data import needs_files
from sightline.paper.open_scores import by_rule
from sightline.paper.open_sets import DOCVQA, LITE, TEXTVQA
from sightline.paper.probe_sets import Built, NothingToAskError, built_set, probe_set
from sightline.probes.typed_rows import JPEG_QUALITY, shown_size

if TYPE_CHECKING:
    from sightline.paper.study import Study
    from sightline.rows import Run

OUTCOME, LOT = "cases-by-outcome", "cases-by-lot"
CASES = {OUTCOME: "cases chosen by outcome", LOT: "cases drawn by lot"}
CHOICES = {
    OUTCOME: "Cases chosen by outcome, as in the paper: Full answers them all, scores and losses are the rule's own",
    LOT: f"As many cases drawn by lot, in the shares of task and stress tags (seed {STRATIFIED_SEED})",
}
"""What stands above a block about either."""
UNQUALIFIED = "unqualified"
"""Key of a set's construction: cases that a demonstration filled up with."""
TASKS = (TEXTVQA, DOCVQA)
FULL = "full"
KEPT = {"30%": "target_grid:0.3", "50%": "target_grid:0.5", "70%": "target_grid:0.7"}
"""The arms whose answers and masks are looked at."""
NEEDS = tuple(Need(QWEN, LITE[task], (FULL, *KEPT.values())) for task in TASKS)
"""The rows that cases are chosen from, and whose masks are audited."""


def open_runs(study: Study) -> dict[str, Run]:
    """The runs of both 500-question parts, by task."""
    found: dict[str, Run] = study.remembered("open runs", lambda: {task: study.run(QWEN, LITE[task]) for task in TASKS})
    return found


def open_rows(study: Study) -> pd.DataFrame:
    """Their rows of Full and the three budgets, each with its task and score; other tables' arms are left out."""

    def make() -> pd.DataFrame:
        rows = pd.concat([by_rule(study, QWEN, LITE[task]) for task in TASKS], ignore_index=True)
        return rows[rows["arm"].isin([study.arm(QWEN, arm) for arm in (FULL, *KEPT.values())])]

    found: pd.DataFrame = study.remembered("open rows", make)
    return found


def case_ids(study: Study, how: str) -> list[str]:
    """The questions of one choice, which is made once per study and locked."""
    found = built_set(study, how)[1]
    if others := found.construction.get(UNQUALIFIED):
        study.note(f"{others} of the cases chosen by outcome do not qualify: a demonstration has too few that do")
    return [probe.id for probe in found.probes]


def _lacks(study: Study) -> str:
    """Why no case can be chosen: the files of a 500-question part are missing."""
    return next(filter(None, (needs_files(task, "lite")(study) for task in TASKS)), "")


@probe_set(
    OUTCOME,
    "48 questions each of TextVQA-500 and DocVQA-500, chosen as in the paper by what pruning did to their answers",
    "sightline paper run S22",
    scorer="open",
    images=f"--images probes/{OUTCOME}-images",
    lacks=_lacks,
)
def by_outcome(study: Study) -> Built:
    chosen = chosen_by_outcome(_cases(study), fill=study.options.demo)
    if not chosen:
        raise NothingToAskError(
            "Full answers no question of TextVQA-500 and DocVQA-500, so none can be chosen by outcome"
        )
    return _built(study, chosen, OUTCOME, {UNQUALIFIED: sum(not case.candidate for case in chosen)})


@probe_set(
    LOT,
    f"as many of each by lot, in the shares of their stress tags, seed {STRATIFIED_SEED}",
    "sightline paper run S22",
    scorer="open",
    images=f"--images probes/{LOT}-images",
    lacks=_lacks,
)
def by_lot(study: Study) -> Built:
    chosen = stratified_sample(_cases(study))
    if not chosen:
        raise NothingToAskError("TextVQA-500 and DocVQA-500 have no two questions to draw one from")
    return _built(study, chosen, LOT, {"seed": STRATIFIED_SEED})


def _cases(study: Study) -> list[OpenCase]:
    tags = {
        str(probe["id"]): stress_tags(str(probe["question"]), probe["answers"])
        for run in open_runs(study).values()
        for probe in run.probes
    }
    return cases_of(open_rows(study), [study.arm(QWEN, arm) for arm in (FULL, *KEPT.values())], tags)


def _built(study: Study, cases: Sequence[OpenCase], how: str, rule: dict[str, int]) -> Built:
    """The cases in the order of their choice, about images as annotators see them."""
    images = study.out / "probes" / f"{how}-images"
    asked = {
        probe.id: _shown(probe, task, root, images)
        for task in TASKS
        for _, found, root in [built_set(study, LITE[task])]
        for probe in found.probes
        if probe.id in {case.id for case in cases}
    }
    digests = {LITE[task]: built_set(study, LITE[task])[1].digest for task in TASKS}
    construction = {"name": how, "of": digests, **rule}
    return Built([asked[case.id] for case in cases], construction, images, {"format": how})


def _shown(probe: Probe, task: str, root: Path, images: Path) -> Probe:
    from sightline.probes.images import open_image

    name = str(PurePosixPath(task) / PurePosixPath(probe.image).with_suffix(".jpg"))
    target = images / name
    target.parent.mkdir(parents=True, exist_ok=True)
    image = open_image(root, probe.image)
    image.resize(shown_size(*image.size)).save(target, format="JPEG", quality=JPEG_QUALITY)
    return replace(probe, image=name)
