"""Where a study's images and their annotations come from: TextOCR, or the shipped scenes for a demonstration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from sightline.checks.demo import asset
from sightline.errors import SightlineError
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
