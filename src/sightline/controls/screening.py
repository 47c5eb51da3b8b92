"""Does an OCR engine read each version of a replaced image as intended? What it cannot read proves nothing."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sightline.boxes.detectors import DETECTORS, Detector
from sightline.controls.text_replacement import ERASE, REPLACEMENT, SHAM, Pixels, Replaced
from sightline.core.text import from_text
from sightline.errors import SightlineError
from sightline.places import open_file
from sightline.probes.typed_rows import is_decision_file, read_decision_file

PADDING = 0.75
"""Of the box's width and height, added on every side of it before reading."""
QUALITY = 95
_OTHER = re.compile(r"[^a-z0-9]")


@dataclass(frozen=True)
class Screened:
    """What was read in each version."""

    image_id: str
    source: str
    target: str
    readings: dict[str, str]

    @property
    def passed(self) -> bool:
        """Replacement shows the decoy and not the word, sham the word and not the decoy, erasure neither."""
        word, decoy = folded(self.source), folded(self.target)
        shown = {version: folded(text) for version, text in self.readings.items()}
        return (
            decoy in shown[REPLACEMENT]
            and word not in shown[REPLACEMENT]
            and word in shown[SHAM]
            and decoy not in shown[SHAM]
            and word not in shown[ERASE]
            and decoy not in shown[ERASE]
        )

    def record(self) -> dict[str, Any]:
        """A line for a table that a person goes through; ``decision`` is theirs to fill in."""
        read = {f"read_{version}": text for version, text in self.readings.items()}
        return {
            "image_id": self.image_id, "source": self.source, "target": self.target, **read,
            "passed": self.passed, "decision": "",
        }  # fmt: skip


class Screen:
    """Reads the surroundings of the box with one engine, in this process."""

    def __init__(self, engine: str) -> None:
        kind = DETECTORS.get(engine)
        kind.require()
        self._engine: Detector = kind()
        self.results: list[Screened] = []

    def __call__(self, made: Replaced) -> bool:
        readings = {version: self.read(image, made.pixels) for version, image in made.versions.items()}
        result = Screened(made.image_id, made.positive.target_text, made.negative.target_text, readings)
        self.results.append(result)
        return result.passed

    def read(self, image: Image.Image, box: Pixels) -> str:
        crop = io.BytesIO()
        image.crop(padded(box, image.size)).save(crop, format="JPEG", quality=QUALITY)
        findings = self._engine.read(np.asarray(Image.open(crop).convert("RGB")))
        return " ".join(finding.text for finding in findings)


def padded(box: Pixels, size: tuple[int, int]) -> Pixels:
    x, y = round(PADDING * (box[2] - box[0])), round(PADDING * (box[3] - box[1]))
    return max(0, box[0] - x), max(0, box[1] - y), min(size[0], box[2] + x), min(size[1], box[3] + y)


def folded(text: str) -> str:
    """Lower-case letters and digits alone: what two readings are compared by."""
    return _OTHER.sub("", text.casefold())


def reviewed_images(path: Path) -> set[str]:
    """Ids of the images that people found valid: in a signed-off decision file, or a reviewed screening.csv."""
    if is_decision_file(path):
        signed = read_decision_file(path).valid_images
        if not signed:
            raise SightlineError(f"{path} found no image valid, so there is nothing to build")
        return set(signed)
    try:
        with io.TextIOWrapper(open_file(path), encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except OSError as problem:
        raise SightlineError(f"cannot read {path}: {problem.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as problem:
        raise SightlineError(f"cannot read {path}: it is no CSV table in UTF-8 ({problem})") from None
    if not rows or not {"image_id", "decision"} <= set(rows[0]):
        raise SightlineError(
            f"{path} needs columns image_id and decision; review the screening.csv of an earlier build"
        )
    valid = {
        from_text(row["image_id"] or "") for row in rows if (row["decision"] or "").strip() == "valid_semantic_edit"
    }
    if not valid:
        raise SightlineError(
            f"{path} has no decision 'valid_semantic_edit'; fill in the column before building with it"
        )
    return valid
