"""Where a study's images and questions come from: TextOCR, three benchmarks of open questions, or drawn stand-ins."""

from __future__ import annotations

import tarfile
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args

from sightline.checks.demo import asset
from sightline.errors import SightlineError
from sightline.places.writing import make_folder, whole_folder, write_whole
from sightline.probes.annotations import load_regions
from sightline.probes.regions import Ingest

ANNOTATIONS = "TextOCR_*val.json"
PLACES = ("train_images", "train", ".", "images", "images/train", "train_val_images", "train_val_images/train_images",
          "train_val_images/train")  # fmt: skip
"""Folders below the given one that images are looked for in. The file says ``train/ID.jpg``, the archive unpacks to
``train_images/ID.jpg``: only the last part of a name counts."""


@dataclass(frozen=True)
class SourceImages:
    """An annotation file, the folder its image names are relative to, and which words are small there."""

    annotations: Path
    root: Path | None = None
    """Where the images are; None: wherever TextOCR's archives put them beside the annotations."""
    word_areas: Mapping[str, float] = field(default_factory=dict)
    """``min_area`` and ``max_area`` where they are not the paper's."""
    profile: str = "paper"

    @cached_property
    def ingest(self) -> Ingest:
        options: dict[str, Any] = {"file_format": "textocr", "profile": self.profile}
        found = load_regions(self.annotations, **options)
        if self.root is not None:
            return found
        return replace(found, records=tuple(replace(record, image=Path(record.image).name) for record in found.records))

    @cached_property
    def images(self) -> Path:
        """The folder of the images; what is missing is said when somebody wants to look at one."""
        if self.root is not None:
            return self.root
        folder, name = self.annotations.parent, self.ingest.records[0].image
        for place in PLACES:
            if (folder / place / name).is_file():
                return folder / place
        raise SightlineError(
            f"{folder} has {self.annotations.name} but not its images: {name} was looked for in {', '.join(PLACES)} "
            "below it"
        )


def textocr(folder: Path, profile: str) -> SourceImages:
    """TextOCR's validation part in a folder."""
    found = sorted(folder.glob(ANNOTATIONS))
    if len(found) != 1:
        many = f"{len(found)} files" if found else "no file"
        raise SightlineError(
            f"{folder} has {many} {ANNOTATIONS}; --textocr is the folder with TextOCR's validation annotations "
            "(TextOCR_0.1_val.json) and images"
        )
    return SourceImages(found[0], profile=profile)


def drawn_scenes() -> SourceImages:
    """The pages that ship with the package, in TextOCR's format. Their words are larger: they are small pages."""
    scenes = asset("scenes", "confirmation")
    return SourceImages(scenes / "annotations.json", scenes / "images", {"min_area": 0.001, "max_area": 0.008})


# Open questions: the published files of three benchmarks, or stand-ins in their layouts.

Part = Literal["whole", "lite"]
"""All questions that the paper's tables are about, or the 500 of LMMs-Eval-Lite."""


@dataclass(frozen=True)
class OpenBenchmark:
    """One benchmark and the files that its publishers ship."""

    task: str
    """Its format, its option of ``sightline paper run``, and the rule that scores its answers."""
    title: str
    get: str
    """How to come by it."""
    images: Sequence[str]
    """Folders that its images unpack into, where they do not lie inside the files."""
    parts: Mapping[Part, Mapping[str, Any]]
    """Of each part how many ``questions`` it has, and ``patterns`` of its files below the given folder, as data sets of
    the hub and the authors' archives unpack."""

    def patterns(self, part: Part) -> Sequence[str]:
        found: Sequence[str] = self.parts.get(part, {}).get("patterns", ())
        return found

    def files(self, folder: Path, part: Part = "whole") -> list[Path]:
        """Shards of the first layout that is there."""
        return next((found for pattern in self.patterns(part) if (found := sorted(folder.glob(pattern)))), [])


def _benchmark(task: str, title: str, get: str, images: Sequence[str], **parts: Mapping[str, Any]) -> OpenBenchmark:
    return OpenBenchmark(task, title, get, images, {part: parts[part] for part in get_args(Part) if part in parts})


BENCHMARKS = {
    task: _benchmark(task, **facts)
    for task, facts in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8")).items()
}


@dataclass(frozen=True)
class OpenData:
    """The folders with open questions that a study was given."""

    given: Mapping[str, Path]
    """By benchmark."""
    stand_ins: Path | None = None
    """Where a demonstration unpacks those that it was not given."""

    def folder(self, task: str) -> Path:
        """The folder with a benchmark's files: the one given, or a demonstration's stand-ins, unpacked on first use."""
        if task in self.given:
            return self.given[task]
        if self.stand_ins is None:
            title = BENCHMARKS[task].title
            raise SightlineError(f"{title} was not given: name its folder with --{task}, or try --demo")
        return _unpacked(self.stand_ins) / task

    def files(self, task: str, part: Part = "whole") -> list[Path]:
        """The files of a benchmark's part; what is missing is said by the names that are looked for."""
        folder = self.folder(task)
        benchmark = BENCHMARKS[task]
        found = benchmark.files(folder, part)
        if not found:
            raise SightlineError(
                f"{folder} has none of {', '.join(benchmark.patterns(part))}; --{task} is the folder with "
                f"{benchmark.title}'s {'questions' if part == 'whole' else '500 questions of LMMs-Eval-Lite'}"
            )
        return found

    def lacks(self, task: str, part: Part = "whole") -> str:
        """Why a benchmark's questions cannot be asked, in words; nothing where they can. Unpacks nothing."""
        if self.stand_ins is not None and task not in self.given:
            return ""
        try:
            self.files(task, part)
        except SightlineError as error:
            return str(error)
        return ""


def _unpacked(folder: Path) -> Path:
    """A demonstration's drawn pages in the publishers' layouts; whole or absent."""
    if not folder.exists():
        make_folder(folder.parent)
        with whole_folder(folder) as unfinished:
            unpack(asset("stand-ins.tar.xz"), unfinished)
    return folder


def unpack(archive: Path, folder: Path) -> None:
    """Every file of the archive, under its name below the folder."""
    with tarfile.open(archive) as packed:
        for member in packed:
            if (content := packed.extractfile(member)) is not None:
                write_whole(folder / member.name, content.read(), make_parent=True)
