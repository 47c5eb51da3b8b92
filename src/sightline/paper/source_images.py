"""Where a study's images and their annotations come from: TextOCR, or the shipped scenes for a demonstration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from sightline.checks.shipped_demo import asset
from sightline.errors import SightlineError
from sightline.probes.annotations import load_regions
from sightline.probes.region_records import Ingest

ANNOTATIONS = "TextOCR_*val.json"
PLACES = (".", "images", "train_val_images", "train_images")
"""Folders below the given one that images are looked for in, as TextOCR's archives unpack."""


@dataclass(frozen=True)
class SourceImages:
    """An annotation file, the folder its image names are relative to, and which words are small there."""

    annotations: Path
    images: Path
    word_areas: Mapping[str, float] = field(default_factory=dict)
    """``min_area`` and ``max_area`` where they are not the paper's."""
    profile: str = "paper"

    @cached_property
    def ingest(self) -> Ingest:
        options: dict[str, Any] = {"file_format": "textocr", "profile": self.profile}
        return load_regions(self.annotations, **options)


def textocr(folder: Path, profile: str) -> SourceImages:
    """TextOCR's validation part in a folder; what is missing is said before anything is computed."""
    found = sorted(folder.glob(ANNOTATIONS))
    if len(found) != 1:
        many = f"{len(found)} files" if found else "no file"
        raise SightlineError(
            f"{folder} has {many} {ANNOTATIONS}; --textocr is the folder with TextOCR's validation annotations "
            "(TextOCR_0.1_val.json) and images"
        )
    source = SourceImages(found[0], folder, profile=profile)
    name = source.ingest.records[0].image
    for place in PLACES:
        if (folder / place / name).is_file():
            return SourceImages(found[0], folder / place, profile=profile)
    raise SightlineError(
        f"{folder} has {found[0].name} but not its images: {name} was looked for in {', '.join(PLACES)} below it"
    )


def drawn_scenes() -> SourceImages:
    """The pages that ship with the package, in TextOCR's format. Their words are larger: they are small pages."""
    scenes = asset("scenes", "confirmation")
    return SourceImages(scenes / "annotations.json", scenes / "images", {"min_area": 0.001, "max_area": 0.008})
