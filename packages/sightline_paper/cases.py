"""The open questions that tables S22 to S24 look at closely: 48 of TextVQA's and 48 of DocVQA's 500, in two choices.

The paper's 96 cases were chosen by outcome: Full answers every one of them, and most lost their answer to pruning.
Their scores are therefore facts about the choice. ``cases-by-outcome`` repeats the rule from this study's own rows,
``cases-by-lot`` is a stratified sample of the same size, which is what the same benchmarks say when nobody looked at
the answers first. Both are ordinary probe sets, with their images as people see them who draw regions: RGB, no side
above 1600 pixels, JPEG. Behind them: the regions that their masks are measured against.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from operator import attrgetter
from pathlib import Path, PurePosixPath

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sightline.analysis.regions import stress_tags
from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.geometry.coverage import Geometry
from sightline.probes.annotations import read_annotations
from sightline.probes.evidence import Evidence, SizeOf, evidence_of_questions, evidence_of_words, with_evidence
from sightline.probes.fetched_images import resolve_image
from sightline.probes.images import image_size, open_image
from sightline.probes.regions import ANSWER
from sightline.probes.typed_rows import ANNOTATED, JPEG_QUALITY, TypedBox, TypedRow, read_typed_rows, shown_size
from sightline.rows.picture import Boxes, stored_geometry
from sightline.rows.run import Run
from sightline_paper.lines import by_rule
from sightline_paper.models import QWEN
from sightline_paper.needs import Need
from sightline_paper.open_sets import DOCVQA, LITE, TEXTVQA
from sightline_paper.study import Built, NothingToAskError, Study, builds, built_set

CASES = 48
"""Of each task, from 500 questions."""
ANSWERED = 0.80
"""Full's score from which on a question may become a case."""
LARGE_DROP, SMALL_DROP = 0.50, 0.20
STRATIFIED_SEED = 20_260_728
_ROUNDING = 1e-9
"""Scores are means of a few tenths: 0.9 - 0.4 is a drop of a half."""


@dataclass(frozen=True)
class OpenCase:
    """A question, what pruning did to its answer, and what makes it hard."""

    id: str
    task: str
    full: float
    """Score with all tokens."""
    drops: tuple[float, float, float]
    """Score lost at 30, 50 and 70 % of them; negative where pruning helped."""
    tags: tuple[str, ...] = ()
    """Stress tags of the question."""

    @property
    def low(self) -> bool:
        return self.drops[0] >= LARGE_DROP - _ROUNDING

    @property
    def mid(self) -> bool:
        return self.drops[1] >= LARGE_DROP - _ROUNDING

    @property
    def persistent(self) -> bool:
        return self.drops[2] >= LARGE_DROP - _ROUNDING

    @property
    def recovered(self) -> bool:
        """Lost at 30 %, and back at 70 %."""
        return self.low and self.drops[2] <= SMALL_DROP + _ROUNDING

    @property
    def control(self) -> bool:
        """A hard question whose answer survived 30 %."""
        return bool(self.tags) and self.drops[0] <= SMALL_DROP + _ROUNDING

    @property
    def candidate(self) -> bool:
        kinds = self.low, self.mid, self.persistent, self.recovered, self.control
        return self.full >= ANSWERED - _ROUNDING and any(kinds)

    @property
    def rank(self) -> tuple[float, int, str]:
        """What cases are sorted by: the greatest drop first, then the most tags, then the id."""
        return -max(self.drops), -len(self.tags), self.id


QUOTAS = tuple(map(attrgetter, ("persistent", "mid", "recovered", "control")))
"""A quarter of a task's cases each, in this order; whoever was taken for one is not taken for the next."""


def cases_of(rows: pd.DataFrame, arms: Sequence[str], tags: Mapping[str, Sequence[str]]) -> list[OpenCase]:
    """One case per question that has a score under all four arms, by id.

    Parameters
    ----------
    rows: columns ``probe_id``, ``task``, ``arm``, ``score``.
    arms: Full, then 30, 50 and 70 %, as the column names them.
    tags: by question id.
    """
    if len(arms) != 4:
        raise SightlineError(f"cases are chosen by Full and three budgets, got {', '.join(arms) or 'none'}")
    own = rows[rows["arm"].isin(arms)]
    scores = own.pivot(index="probe_id", columns="arm", values="score").reindex(columns=list(arms)).dropna()
    tasks = own.drop_duplicates("probe_id").set_index("probe_id")["task"]
    found = []
    for probe, full, *pruned in scores.sort_index().itertuples(name=None):
        low, mid, high = (float(full - score) for score in pruned)
        its_tags = tuple(tags.get(probe, ()))
        found.append(OpenCase(str(probe), str(tasks[probe]), float(full), (low, mid, high), its_tags))
    return found


def case_count(questions: int) -> int:
    """How many cases a task with so many questions gives: 48, or half of a small set."""
    return min(CASES, questions // 2)


def chosen_by_outcome(cases: Iterable[OpenCase], *, fill: bool = False) -> list[OpenCase]:
    """The paper's rule: a quarter each persistent, mid, recovered and control, topped up with other candidates.

    ``fill`` goes on with questions that are no candidates where those do not suffice, for demonstrations alone.
    """
    found: list[OpenCase] = []
    for own in _by_task(cases).values():
        wanted = case_count(len(own))
        ordered = sorted((case for case in own if case.candidate), key=lambda case: case.rank)
        chosen: dict[str, OpenCase] = {}
        for quota in QUOTAS:
            free = [case for case in ordered if case.id not in chosen and quota(case)]
            chosen |= {case.id: case for case in free[: wanted // len(QUOTAS)]}
        rest = [case for case in ordered if case.id not in chosen]
        if fill:
            rest += sorted((case for case in own if not case.candidate), key=lambda case: case.rank)
        chosen |= {case.id: case for case in rest[: wanted - len(chosen)]}
        found += chosen.values()
    return found


def stratified_sample(cases: Iterable[OpenCase], *, seed: int = STRATIFIED_SEED) -> list[OpenCase]:
    """As many cases of each task by lot, every set of stress tags in its share; answers are not looked at.

    A stratum gets the whole part of its share; what is left goes to the largest remainders, ties by name. One
    generator draws from the strata in the order of their names.
    """
    rng = random.Random(seed)
    found: list[OpenCase] = []
    for _, own in sorted(_by_task(cases).items()):
        wanted = case_count(len(own))
        strata: dict[tuple[str, ...], list[OpenCase]] = {}
        for case in sorted(own, key=lambda case: case.id):
            strata.setdefault(case.tags, []).append(case)
        shares = {tags: wanted * len(members) / len(own) for tags, members in strata.items()}
        counts = {tags: int(share) for tags, share in shares.items()}
        left = wanted - sum(counts.values())
        for tags in sorted(shares, key=lambda tags: (counts[tags] - shares[tags], tags))[:left]:
            counts[tags] += 1
        found += [case for tags in sorted(strata) for case in rng.sample(strata[tags], counts[tags])]
    return found


def _by_task(cases: Iterable[OpenCase]) -> dict[str, list[OpenCase]]:
    found: dict[str, list[OpenCase]] = {}
    for case in cases:
        found.setdefault(case.task, []).append(case)
    return found


# The two choices as probe sets.

OUTCOME, LOT = "cases-by-outcome", "cases-by-lot"
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
    return study.remembered("open runs", lambda: {task: study.run(QWEN, LITE[task]) for task in TASKS})


def open_rows(study: Study) -> pd.DataFrame:
    """Their rows of Full and the three budgets, each with its task and score; other tables' arms are left out."""

    def make() -> pd.DataFrame:
        rows = pd.concat([by_rule(study, QWEN, LITE[task]) for task in TASKS], ignore_index=True)
        return rows[rows["arm"].isin([study.arm(QWEN, arm) for arm in (FULL, *KEPT.values())])]

    return study.remembered("open rows", make)


def case_ids(study: Study, how: str) -> list[str]:
    """The questions of one choice, which is made once per study and locked."""
    found = built_set(study, how)[1]
    if others := found.construction.get(UNQUALIFIED):
        study.note(f"{others} of the cases chosen by outcome do not qualify: a demonstration has too few that do")
    return [probe.id for probe in found.probes]


def _lacks(study: Study, name: str) -> str:
    """Why no case can be chosen: the files of a 500-question part are missing."""
    return next(filter(None, (study.questions.lacks(task, "lite") for task in TASKS)), "")


@builds(OUTCOME, lacks=_lacks)
def by_outcome(study: Study, name: str) -> Built:
    chosen = chosen_by_outcome(_cases(study), fill=study.options.demo)
    if not chosen:
        raise NothingToAskError(
            "Full answers no question of TextVQA-500 and DocVQA-500, so none can be chosen by outcome"
        )
    return _built(study, chosen, OUTCOME, {UNQUALIFIED: sum(not case.candidate for case in chosen)})


@builds(LOT, lacks=_lacks)
def by_lot(study: Study, name: str) -> Built:
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
    name = str(PurePosixPath(task) / PurePosixPath(probe.image).with_suffix(".jpg"))
    target = images / name
    target.parent.mkdir(parents=True, exist_ok=True)
    image = open_image(root, probe.image)
    image.resize(shown_size(*image.size)).save(target, format="JPEG", quality=JPEG_QUALITY)
    return replace(probe, image=name)


# What the coverage of cases is measured against: regions that people drew, or boxes that come with the benchmarks.
#
# Masks are those of the finished runs. Nothing is answered again, and no selector saw any of these regions.

EXTERNAL = ("boxes-*.parquet", "TextVQA_GT_bbox/**/*.parquet", "TextVQA_GT_bbox*.json")
"""Patterns of jrzhang/TextVQA_GT_bbox below TextVQA's folder."""
OCR_FOLDERS = ("ocr_results", "spdocvqa_ocr")
"""Folders of DocVQA's OCR pages below its own, as its archives unpack."""

Regions = dict[str, Evidence]
"""By question id."""


def cases_of_task(study: Study, how: str, task: str) -> list[Probe]:
    """The cases of one task as its 500-question part asks them, about the images that were pruned."""
    wanted = set(case_ids(study, how))
    return [probe for probe in built_set(study, LITE[task])[1].probes if probe.id in wanted]


def size_of_images(study: Study, task: str) -> SizeOf:
    """Width and height in pixels by the name of an image, each read once."""
    root = built_set(study, LITE[task])[2]
    return cache(lambda name: image_size(resolve_image(root, name)))


# Where regions come from.


def external_boxes(study: Study, probes: Sequence[Probe]) -> Regions:
    """TextVQA: one box for each answer, drawn by others (TextVQA_GT_bbox)."""
    folder = study.questions.folder(TEXTVQA)
    files = next((found for pattern in EXTERNAL if (found := sorted(folder.glob(pattern)))), [])
    if not files:
        raise SightlineError(f"{folder} has no boxes of TextVQA's answers: {', '.join(EXTERNAL)}")
    options = {"id_prefix": probes[0].id.partition(":")[0]} if probes else {}
    return evidence_of_questions(probes, read_annotations(files, options, file_format="textvqa_gt").probes)


def answer_words(study: Study, probes: Sequence[Probe]) -> Regions:
    """DocVQA: the words of the answer, found in its published OCR."""
    return _ocr_regions(study, probes, None)


def line_context(study: Study, probes: Sequence[Probe]) -> Regions:
    """DocVQA: those words, and the ones beside them on their line, each a region."""
    return _ocr_regions(study, probes, size_of_images(study, DOCVQA))


def _ocr_regions(study: Study, probes: Sequence[Probe], size_of: SizeOf | None) -> Regions:
    folder = study.questions.folder(DOCVQA)
    pages = {PurePosixPath(probe.image).stem for probe in probes}
    files = [
        file for name in OCR_FOLDERS for page in sorted(pages) if (file := folder / name / f"{page}.json").is_file()
    ]
    if not files:
        raise SightlineError(f"{folder} has no OCR of these pages: {' or '.join(OCR_FOLDERS)} with a JSON file each")
    records = [record for file in files for record in read_annotations(file, {}, file_format="ms_read").records]
    return evidence_of_words(probes, records, size_of)


def typed_regions(study: Study, probes: Sequence[Probe], size_of: SizeOf) -> Regions:
    """What people drew (``--annotations``): rows of these questions, by benchmark and the number of the question."""
    rows = {question_key(row.sample_id): row for row in typed_rows(study, "annotations") if row.status == ANNOTATED}
    drawn = ((probe, rows.get(question_key(probe.id))) for probe in probes)
    return {probe.id: row.evidence(*shown(size_of)(probe.image)) for probe, row in drawn if row is not None}


def typed_rows(study: Study, option: str) -> list[TypedRow]:
    """The rows of a file that people filled in; none where it was not given."""
    path = study.options.judgements[option]
    return [] if path is None else read_typed_rows(path)


def several_regions(study: Study, how: str) -> Regions:
    """Regions of the cases of one choice: people's where they drew any, else the boxes that come with each benchmark.

    A note says which, and of how many cases.
    """
    return study.remembered(("regions", how), lambda: _several(study, how))


def _several(study: Study, how: str) -> Regions:
    by_task = {task: cases_of_task(study, how, task) for task in TASKS}
    cases = sum(map(len, by_task.values()))
    drawn: Regions = {}
    for task, probes in by_task.items():
        drawn |= typed_regions(study, probes, size_of_images(study, task))
    if drawn:
        study.note(f"{how}: {len(drawn)} of {cases} cases have regions that people drew; the others are left out")
        return drawn
    found = {**external_boxes(study, by_task[TEXTVQA]), **line_context(study, by_task[DOCVQA])}
    study.note(
        f"{how}: nobody drew regions (--annotations), so {len(found)} of {cases} cases are audited against "
        "TextVQA_GT_bbox (one region each) and DocVQA's OCR (the answer's words and those beside them)"
    )
    return found


# What masks cover of them.


def audited(study: Study, regions: Mapping[str, Boxes]) -> pd.DataFrame:
    """Rows of questions with regions, all arms: ``ecr``, ``worst_region``, ``all_half`` measured on these."""
    if not regions:
        raise SightlineError("none of the cases has a region")
    kept: dict[tuple[str, str], Geometry] = {}
    for run in open_runs(study).values():
        rows = run.rows.filter(pc.is_in(run.rows.column("probe_id"), pa.array(list(regions), pa.string())))
        keys = zip(*(rows.column(name).to_pylist() for name in ("arm", "probe_id")), strict=True)
        found = zip(keys, stored_geometry(rows, run.images, regions), strict=True)
        kept |= {key: geometry for key, geometry in found if geometry is not None}
    answered = open_rows(study)
    answered = answered[answered["probe_id"].isin(list(regions))]
    own = [kept[key] for key in zip(answered["arm"], answered["probe_id"], strict=True)]
    return answered.assign(
        ecr=[each.ecr for each in own],
        worst_region=[each.worst_region for each in own],
        all_half=[float(each.all_half) for each in own],
    )


def boxes_of(regions: Regions) -> dict[str, Boxes]:
    return {probe: evidence.regions for probe, evidence in regions.items()}


def with_regions(probes: Sequence[Probe], regions: Regions) -> list[Probe]:
    """Those of the probes that have regions, with them."""
    return [probe for probe in with_evidence(probes, regions) if probe.id in regions]


def shown(size_of: SizeOf) -> SizeOf:
    """The size at which annotators see an image."""
    return lambda name: shown_size(*size_of(name))


def question_key(sample_id: str) -> tuple[str, str]:
    """Benchmark and number, whatever the profile calls the part: ``docvqa_val_lite:49153`` -> docvqa, 49153."""
    prefix, _, number = sample_id.partition(":")
    return prefix.partition("_")[0], number


# Rows that two people drew; in a demonstration those of the drawn pages, and a second person who was less careful.

MOVED = 0.3
"""How far the demonstration's second person moves a box, in its sides."""
FORGOTTEN = 0.3
"""How often that person leaves out a region that is not the answer."""


def both_annotators(study: Study) -> tuple[list[TypedRow], list[TypedRow]]:
    """The rows of the first and of the second person; refused in words where one is missing."""
    first, second = (typed_rows(study, name) for name in ("annotations", "second_annotations"))
    if study.options.demo:
        folders = [study.questions.folder(task) for task in TASKS]
        first = first or [row for folder in folders for row in read_typed_rows(folder / "annotations.jsonl")]
        return first, second or careless(first)
    if not first or not second:
        raise SightlineError("agreement needs rows of two people: give --annotations and --second-annotations")
    return first, second


def careless(rows: list[TypedRow]) -> list[TypedRow]:
    """The rows as somebody in a hurry might have drawn them: boxes moved, some besides the answer forgotten."""
    rng = random.Random(0)

    def moved(box: TypedBox) -> TypedBox:
        along, down = (rng.uniform(-MOVED, MOVED) for _ in range(2))
        return replace(box, x=max(0.0, box.x + along * box.w), y=max(0.0, box.y + down * box.h))

    found = []
    for row in rows:
        kept = [box for box in row.boxes if box.role == ANSWER or rng.random() >= FORGOTTEN]
        found.append(replace(row, boxes=tuple(map(moved, kept))))
    return found
