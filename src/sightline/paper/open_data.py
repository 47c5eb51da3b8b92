"""Where a study's open questions come from: the published files of three benchmarks, or stand-ins in their layouts."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from sightline.checks.demo import asset
from sightline.errors import SightlineError
from sightline.places.writing import write_whole

if TYPE_CHECKING:
    from sightline.paper.study import Study

Part = Literal["whole", "lite"]
"""All questions that the paper's tables are about, or the 500 of LMMs-Eval-Lite."""
STAND_INS = "stand-ins"


@dataclass(frozen=True)
class OpenBenchmark:
    """One benchmark and the files that its publishers ship."""

    task: str
    """Its format, its option of ``sightline paper run``, and the rule that scores its answers."""
    title: str
    whole: tuple[str, ...]
    """Patterns of the files below the given folder, as data sets of the hub and the authors' archives unpack."""
    lite: tuple[str, ...] = ()
    images: tuple[str, ...] = ()
    """Folders that its images unpack into, where they do not lie inside the files."""

    def patterns(self, part: Part) -> tuple[str, ...]:
        return self.whole if part == "whole" else self.lite

    def files(self, folder: Path, part: Part = "whole") -> list[Path]:
        """Shards of the first layout that is there."""
        for pattern in self.patterns(part):
            if found := sorted(folder.glob(pattern)):
                return found
        return []


BENCHMARKS = {
    benchmark.task: benchmark
    for benchmark in (
        OpenBenchmark(
            "textvqa",
            "TextVQA",
            ("validation-*.parquet", "data/validation-*.parquet", "TextVQA_*_val.json"),
            ("lite-*.parquet", "textvqa_val/lite-*.parquet", "LMMs-Eval-Lite/textvqa_val/lite-*.parquet"),
            ("train_images",),
        ),
        OpenBenchmark(
            "docvqa",
            "DocVQA",
            ("validation-*.parquet", "DocVQA/validation-*.parquet", "val_v1.0*.json", "spdocvqa_qas/val_v1.0*.json"),
            ("lite-*.parquet", "docvqa_val/lite-*.parquet", "LMMs-Eval-Lite/docvqa_val/lite-*.parquet"),
            ("documents", "spdocvqa_images"),
        ),
        OpenBenchmark(
            "ocrbench",
            "OCRBench",
            ("test-*.parquet", "data/test-*.parquet", "OCRBench.json"),
            images=("OCRBench_Images",),
        ),
    )
}


def open_folder(study: Study, task: str) -> Path:
    """The folder with a benchmark's files: the one given, or a demonstration's stand-ins, drawn on first use."""
    given = study.open_data.get(task)
    if given is not None:
        return given
    if not study.options.demo:
        raise SightlineError(f"{BENCHMARKS[task].title} was not given: name its folder with --{task}, or try --demo")
    return stand_ins(study) / task


def open_files(study: Study, task: str, part: Part = "whole") -> list[Path]:
    """The files of a benchmark's part; what is missing is said by the names that are looked for."""
    folder = open_folder(study, task)
    benchmark = BENCHMARKS[task]
    found = benchmark.files(folder, part)
    if not found:
        raise SightlineError(
            f"{folder} has none of {', '.join(benchmark.patterns(part))}; --{task} is the folder with "
            f"{benchmark.title}'s {'questions' if part == 'whole' else '500 questions of LMMs-Eval-Lite'}"
        )
    return found


def needs_files(task: str, part: Part = "whole") -> Callable[[Study], str]:
    """What a probe set says of a study that lacks a benchmark's files; nothing of one that has them."""

    def lacks(study: Study) -> str:
        if study.options.demo and task not in study.open_data:
            return ""
        try:
            open_files(study, task, part)
        except SightlineError as error:
            return str(error)
        return ""

    return lacks


def stand_ins(study: Study) -> Path:
    """A demonstration's drawn pages in the publishers' layouts, below its folder; whole or absent."""
    folder = study.out / STAND_INS
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        unpack(asset(f"{STAND_INS}.tar.xz"), unfinished)
        os.replace(unfinished, folder)
    return folder


def unpack(archive: Path, folder: Path) -> None:
    """Every file of the archive, under its name below the folder."""
    with tarfile.open(archive) as packed:
        for member in packed:
            if (content := packed.extractfile(member)) is not None:
                write_whole(folder / member.name, content.read(), make_parent=True)
