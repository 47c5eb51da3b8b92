"""What the coverage of cases is measured against: regions that people drew, or boxes that come with the benchmarks.

Masks are those of the finished runs. Nothing is answered again, and no selector saw any of these regions.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import PurePosixPath

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from sightline.core.probe import Probe
from sightline.errors import SightlineError
from sightline.geometry.coverage import Geometry
from sightline.paper.cases import TASKS, case_ids, open_rows, open_runs
from sightline.paper.open_sets import DOCVQA, LITE, TEXTVQA
from sightline.paper.study import Study, built_set
from sightline.probes.annotations import read_annotations
from sightline.probes.evidence import Evidence, SizeOf, evidence_of_questions, evidence_of_words, with_evidence
from sightline.probes.fetched_images import resolve_image
from sightline.probes.images import image_size
from sightline.probes.regions import ANSWER
from sightline.probes.typed_rows import ANNOTATED, TypedBox, TypedRow, read_typed_rows, shown_size
from sightline.rows.picture import Boxes, stored_geometry

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
    found = {}
    for probe in probes:
        row = rows.get(question_key(probe.id))
        if row is not None:
            found[probe.id] = row.evidence(*shown(size_of)(probe.image))
    return found


def typed_rows(study: Study, option: str) -> list[TypedRow]:
    """The rows of a file that people filled in; none where it was not given."""
    path = study.options.judgements[option]
    return [] if path is None else read_typed_rows(path)


def several_regions(study: Study, how: str) -> Regions:
    """Regions of the cases of one choice: people's where they drew any, else the boxes that come with each benchmark.

    A note says which, and of how many cases.
    """
    found: Regions = study.remembered(("regions", how), lambda: _several(study, how))
    return found


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
        first = first or [row for task in TASKS for row in _drawn(study, task)]
        return first, second or careless(first)
    if not first or not second:
        raise SightlineError("agreement needs rows of two people: give --annotations and --second-annotations")
    return first, second


def _drawn(study: Study, task: str) -> list[TypedRow]:
    return read_typed_rows(study.questions.folder(task) / "annotations.jsonl")


def careless(rows: list[TypedRow]) -> list[TypedRow]:
    """The rows as somebody in a hurry might have drawn them: boxes moved, some besides the answer forgotten."""
    rng = random.Random(0)
    found = []
    for row in rows:
        kept = [box for box in row.boxes if box.role == ANSWER or rng.random() >= FORGOTTEN]
        found.append(replace(row, boxes=tuple(_moved(box, rng) for box in kept)))
    return found


def _moved(box: TypedBox, rng: random.Random) -> TypedBox:
    along, down = (rng.uniform(-MOVED, MOVED) for _ in range(2))
    return replace(box, x=max(0.0, box.x + along * box.w), y=max(0.0, box.y + down * box.h))
