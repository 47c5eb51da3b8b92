"""The sets of open questions that tables ask for: TextVQA, DocVQA, their 500-question parts, 100 questions of OCRBench.

Answers, decoys and regions are in the probe files for those who score and audit; no selector is shown any of them.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from sightline.core.probe import Probe
from sightline.probes import HardPairRules
from sightline.probes.annotations import read_annotations
from sightline.probes.questions import add_decoys, sample_questions, take_questions
from sightline.probes.regions import Ingest
from sightline_paper.data import BENCHMARKS, Part
from sightline_paper.study import Built, NothingToAskError, Study, builds

TEXTVQA, DOCVQA, OCRBENCH = "textvqa", "docvqa", "ocrbench"
TEXTVQA_LITE, DOCVQA_LITE = "textvqa-lite", "docvqa-lite"
LITE = {TEXTVQA: TEXTVQA_LITE, DOCVQA: DOCVQA_LITE}
"""Full validation -> its 500-question part."""
PARTS: dict[str, tuple[str, Part]] = {
    **{task: (task, "whole") for task in (TEXTVQA, DOCVQA, OCRBENCH)},
    **{lite: (task, "lite") for task, lite in LITE.items()},
}
"""Benchmark and part of each set."""
PER_TYPE, OCRBENCH_SEED = 10, 29
"""Questions of each of OCRBench's ten types, and the seed that they and their decoys are drawn with."""
JPEG_QUALITY = 95
"""Of the images that the artifact took from OCRBench."""


def questions_of(study: Study, task: str, part: Part = "whole") -> tuple[Ingest, Path]:
    """All questions of a benchmark's files, and the folder that their images are in or will be unpacked into.

    The artifact's profile gives questions the ids that its draws were salted with, and writes OCRBench's images anew.
    """
    options: dict[str, Any] = {}
    if study.options.profile == "artifact":
        ending = "_lite" if part == "lite" else ""
        options = {"jpeg": JPEG_QUALITY} if task == OCRBENCH else {"id_prefix": f"{task}_val{ending}"}
    files = study.questions.files(task, part)
    ingest = read_annotations(files, options, file_format=task)
    if ingest.packed is not None:
        return ingest, study.out / "probes" / f"{task}-images"
    if ingest.images is None:
        inside = ", ".join(BENCHMARKS[task].images)
        raise NothingToAskError(
            f"{files[0]} was found, but not its images: {ingest.probes[0].image} was looked for in {inside} beside it "
            "and beside its folder"
        )
    return ingest, ingest.images


def asked(ingest: Ingest, probes: Sequence[Probe], construction: dict[str, Any], images: Path) -> Built:
    """These questions of a benchmark as a probe set, their images unpacked where they lie inside its files."""
    if ingest.packed is not None:
        ingest.packed.unpack(images, {probe.image for probe in probes})
    return Built(probes, {"name": ingest.source["format"], **construction}, images, ingest.source)


def _lacks(study: Study, name: str) -> str:
    return study.questions.lacks(*PARTS[name])


@builds(TEXTVQA, TEXTVQA_LITE, DOCVQA, DOCVQA_LITE, lacks=_lacks)
def all_questions(study: Study, name: str) -> Built:
    """Every question; of a pilot or a demonstration those of the first so many images."""
    ingest, images = questions_of(study, *PARTS[name])
    taken = take_questions(ingest.probes, HardPairRules(limit_images=study.limit)).probes
    return asked(ingest, taken, {"limit_images": study.limit}, images)


@builds(OCRBENCH, lacks=_lacks)
def ocrbench(study: Study, name: str) -> Built:
    ingest, images = questions_of(study, OCRBENCH)
    each = PER_TYPE if study.limit is None else min(PER_TYPE, -(-study.limit // len(ingest.kinds)))
    rng = random.Random(OCRBENCH_SEED)
    drawn = add_decoys(sample_questions(ingest.probes, each, rng, ingest.kinds), ingest.probes, rng)
    return asked(ingest, drawn, {"sample": each, "seed": OCRBENCH_SEED, "decoys": True}, images)
