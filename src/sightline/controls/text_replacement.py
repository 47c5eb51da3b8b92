"""Text replacement: the decoy painted where the word stood, beside two controls that repaint and that only erase.

A model that reads answers yes to the decoy on the replacement and no to it everywhere else. The sham, the same
repainting with the original word, tells reading apart from an effect of painting; the erasure tells it from guessing.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from sightline.boxes.detectors import DETECTORS, Detector
from sightline.core.probe import ORIGINAL as AS_IT_IS
from sightline.core.probe import Box, Label, Probe
from sightline.core.text import from_text
from sightline.errors import SightlineError
from sightline.places.writing import make_folder, write_whole
from sightline.probes.data_rows import read_table
from sightline.probes.fetched_images import resolve_image
from sightline.probes.images import open_image, stored_as
from sightline.probes.typed_rows import is_decision_file, read_decision_file

# Painting another word where a word stood: erase the box, choose a font that fits both words, draw, find a glyph.

Pixels = tuple[int, int, int, int]
"""left, top, right, bottom; right and bottom exclusive."""

FONTS = {
    "DejaVu Sans": "DejaVuSans.ttf",
    "DejaVu Sans Bold": "DejaVuSans-Bold.ttf",
    "DejaVu Serif": "DejaVuSerif.ttf",
    "DejaVu Serif Bold": "DejaVuSerif-Bold.ttf",
    "DejaVu Sans Mono": "DejaVuSansMono.ttf",
    "DejaVu Sans Mono Bold": "DejaVuSansMono-Bold.ttf",
}
"""Families in order of preference, and the file names of a folder of complete fonts."""
SHIPPED = Path(__file__).resolve().parents[1] / "assets" / "fonts"
SCALE = 4
LARGEST, SMALLEST = 64, 4
DARK, LIGHT = (20, 20, 20), (235, 235, 235)


def font_files(folder: Path | None = None) -> list[Path]:
    """The fonts of the list that are there: in ``folder`` under their usual names, else the shipped ASCII subsets."""
    if folder is not None:
        found = [folder / name for name in FONTS.values() if (folder / name).is_file()]
        if not found:
            raise SightlineError(f"{folder} holds none of {', '.join(FONTS.values())}; name a folder with DejaVu fonts")
        return found
    try:
        shipped = json.loads((SHIPPED / "fonts.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        shipped = []
    files = {str(entry["subset_of"]): SHIPPED / str(entry["file"]) for entry in shipped}
    found = [files[family] for family in FONTS if family in files and files[family].is_file()]
    if not found:
        raise SightlineError("no shipped font can draw the replacement; name a folder with DejaVu fonts by --fonts")
    return found


@cache
def load_font(file: Path, size: int) -> ImageFont.FreeTypeFont:
    try:
        return ImageFont.truetype(str(file), size, layout_engine=ImageFont.Layout.BASIC)
    except OSError as problem:
        raise SightlineError(f"font {file} cannot be read: {problem}") from None


@cache
def can_draw(file: Path, text: str) -> bool:
    """Whether the font has a glyph of its own for every character: a box for a missing one is no letter."""
    font = load_font(file, 32)
    missing = font.getmask("\uffff").getbbox(), bytes(font.getmask("\uffff"))
    return all(
        char.isspace() or (font.getmask(char).getbbox(), bytes(font.getmask(char))) != missing for char in set(text)
    )


def outer_pixels(box: Box, width: int, height: int) -> Pixels:
    """The whole pixels that a box touches, within the image."""
    left, top = max(0, math.floor(box[0] * width)), max(0, math.floor(box[1] * height))
    return left, top, min(width, math.ceil(box[2] * width)), min(height, math.ceil(box[3] * height))


def ink_colour(image: Image.Image, box: Pixels) -> tuple[int, int, int]:
    """Dark on a bright place, bright on a dark one."""
    return DARK if float(np.median(np.asarray(image.crop(box).convert("L")))) >= 128 else LIGHT


def erased(image: Image.Image, box: Pixels) -> Image.Image:
    """The image with the box filled from its surroundings.

    Telea inpainting of exactly the box, radius round(0.3 * shorter side) within 2..9; without OpenCV the per-channel
    median of a ring around the box, which leaves a visible patch on anything but plain ground.
    """
    width, height = box[2] - box[0], box[3] - box[1]
    pixels = np.asarray(image.convert("RGB"))
    try:
        import cv2
    except ImportError:
        return _ring_filled(pixels, box)
    mask = np.zeros(pixels.shape[:2], dtype=np.uint8)
    mask[box[1] : box[3], box[0] : box[2]] = 255
    radius = min(9, max(2, round(0.30 * min(width, height))))
    return Image.fromarray(cv2.inpaint(np.ascontiguousarray(pixels), mask, radius, cv2.INPAINT_TELEA))


def _ring_filled(pixels: np.ndarray, box: Pixels) -> Image.Image:
    left, top, right, bottom = box
    pad = max(2, round(0.25 * min(right - left, bottom - top)))
    around = np.zeros(pixels.shape[:2], dtype=bool)
    around[max(0, top - pad) : bottom + pad, max(0, left - pad) : right + pad] = True
    around[top:bottom, left:right] = False
    filled = pixels.copy()
    ground = pixels[around] if around.any() else pixels.reshape(-1, 3)
    filled[top:bottom, left:right] = np.median(ground, axis=0).round().astype(np.uint8)
    return Image.fromarray(filled)


@dataclass(frozen=True)
class Lettering:
    """A font file and the size at which both words fit the box."""

    file: Path
    size: int


def common_lettering(texts: Sequence[str], box: Pixels, files: Sequence[Path]) -> Lettering | None:
    """The font that allows the largest size at which all texts fit, the earlier one on a tie; None if none fits."""
    room = (box[2] - box[0] - 2, box[3] - box[1] - 2)
    best: Lettering | None = None
    for file in files:
        if not all(can_draw(file, text) for text in texts):
            continue
        for size in range(min(room[1] + 6, LARGEST), SMALLEST - 1, -1):
            if best is not None and size <= best.size:
                break
            font = load_font(file, size)
            if all(_extent(font, text)[0] <= room[0] and _extent(font, text)[1] <= room[1] for text in texts):
                best = Lettering(file, size)
                break
    return best


def _extent(font: ImageFont.FreeTypeFont, text: str) -> tuple[float, float]:
    left, top, right, bottom = font.getbbox(text)
    return right - left, bottom - top


def _origin(font: ImageFont.FreeTypeFont, text: str, box: Pixels) -> tuple[int, int]:
    """Where the text starts on the enlarged overlay so that its ink is centred."""
    left, top, right, bottom = (int(edge) for edge in font.getbbox(text))
    width, height = (box[2] - box[0]) * SCALE, (box[3] - box[1]) * SCALE
    return (width - (right - left)) // 2 - left, (height - (bottom - top)) // 2 - top


def lettered(
    image: Image.Image, text: str, box: Pixels, lettering: Lettering, colour: tuple[int, int, int]
) -> Image.Image:
    """The image with the text drawn into the box: four times enlarged, then reduced, so that edges are smooth."""
    font = load_font(lettering.file, lettering.size * SCALE)
    size = (box[2] - box[0], box[3] - box[1])
    overlay = Image.new("RGBA", (size[0] * SCALE, size[1] * SCALE), (*colour, 0))
    ImageDraw.Draw(overlay).text(_origin(font, text, box), text, font=font, fill=(*colour, 255))
    drawn = image.convert("RGBA")
    drawn.alpha_composite(overlay.resize(size, Image.Resampling.LANCZOS), dest=box[:2])
    return drawn.convert("RGB")


def glyph_box(text: str, index: int, box: Pixels, lettering: Lettering, image: tuple[int, int]) -> Box:
    """Where character ``index`` of a drawn text lies, one pixel wider on every side, in fractions of the image."""
    font = load_font(lettering.file, lettering.size * SCALE)
    x, y = _origin(font, text, box)
    char = text[index]
    x += int(font.getlength(text[: index + 1]) - font.getlength(char)) if index else 0
    left, top, right, bottom = font.getbbox(char)
    width, height = image
    return (
        max(0, box[0] + math.floor((x + left) / SCALE) - 1) / width,
        max(0, box[1] + math.floor((y + top) / SCALE) - 1) / height,
        min(width, box[0] + math.ceil((x + right) / SCALE) + 1) / width,
        min(height, box[1] + math.ceil((y + bottom) / SCALE) + 1) / height,
    )


LONGEST_NAME = 120
"""Bytes of an image id within a file name."""
LEAST_WIDTH, LEAST_HEIGHT = 20, 12
REPLACEMENT, SHAM, ERASE, ORIGINAL = "replacement", "sham", "erase", "original"
LABELS: dict[str, tuple[Label, Label]] = {
    ORIGINAL: ("yes", "no"),
    REPLACEMENT: ("no", "yes"),
    SHAM: ("yes", "no"),
    ERASE: ("no", "no"),
}
"""Version of the image -> the right answers about the original word and about the decoy."""


@dataclass(frozen=True)
class Replaced:
    """One image in its versions."""

    positive: Probe
    negative: Probe
    pixels: Pixels
    versions: dict[str, Image.Image]
    glyph: Box | None
    """The one character that differs, as drawn in the replacement; None when more than one does."""

    @property
    def image_id(self) -> str:
        return self.positive.image_id


def first_pairs(probes: Iterable[Probe]) -> list[tuple[Probe | None, Probe | None]]:
    """Per image, in order of id, its first positive and its first negative."""
    groups: dict[str, dict[str, Probe]] = {}
    for probe in probes:
        groups.setdefault(probe.image_id, {}).setdefault(probe.label, probe)
    return [(groups[image_id].get("yes"), groups[image_id].get("no")) for image_id in sorted(groups)]


def replacements(
    probes: Iterable[Probe],
    images: Path,
    *,
    fonts: Path | None = None,
    limit: int | None = 100,
    equal_length: bool = False,
    skipped: Counter[str] | None = None,
    accept: Callable[[Replaced], bool] = lambda replaced: True,
) -> list[Replaced]:
    """The first ``limit`` images whose word can be replaced by its decoy and that ``accept`` (a screening) admits.

    Why others gave none is counted in ``skipped``.
    """
    files = font_files(fonts)
    reasons = Counter() if skipped is None else skipped
    found: list[Replaced] = []
    for positive, negative in first_pairs(probes):
        if limit is not None and len(found) >= limit:
            break
        if positive is None or negative is None:
            reasons["no pair"] += 1
            continue
        reason = _unusable(positive, negative, equal_length)
        if reason:
            reasons[reason] += 1
            continue
        made = replaced(positive, negative, open_image(images, positive.image), files)
        if isinstance(made, str):
            reasons[made] += 1
        elif accept(made):
            found.append(made)
        else:
            reasons["not readable as intended"] += 1
    if not found:
        counted = ", ".join(f"{count} {reason}" for reason, count in reasons.most_common()) or "no probes"
        raise SightlineError(f"no image allows a text replacement: {counted}")
    return found


def _unusable(positive: Probe, negative: Probe, equal_length: bool) -> str:
    source, target = positive.target_text, negative.target_text
    if len(positive.regions) != 1 or len(negative.regions) != 1:
        return "without exactly one region"
    if not source or not target or positive.image != negative.image:
        return "without text or image"
    if equal_length and len(source) != len(target):
        return "with words of unequal length"
    if not all(any(char.isascii() and char.isalnum() for char in text) for text in (source, target)):
        return "without a letter or digit"
    return ""


def replaced(positive: Probe, negative: Probe, image: Image.Image, files: Sequence[Path]) -> Replaced | str:
    """All versions of one image, or why it cannot be done."""
    source, target = positive.target_text, negative.target_text
    box = outer_pixels(positive.regions[0], *image.size)
    if box[2] - box[0] < LEAST_WIDTH or box[3] - box[1] < LEAST_HEIGHT:
        return "too small a box"
    lettering = common_lettering((source, target), box, files)
    if lettering is None:
        return "no font fits"
    colour = ink_colour(image, box)
    ground = erased(image, box)
    versions = {
        REPLACEMENT: lettered(ground, target, box, lettering, colour),
        SHAM: lettered(ground, source, box, lettering, colour),
        ERASE: ground,
    }
    index = single_edit(source, target)
    glyph = None if index is None else glyph_box(target, index, box, lettering, image.size)
    return Replaced(positive, negative, box, versions, glyph)


def single_edit(source: str, target: str) -> int | None:
    """The one position at which two words of equal length differ, or None."""
    if len(source) != len(target):
        return None
    differing = [i for i, (a, b) in enumerate(zip(source, target, strict=True)) if a != b]
    return differing[0] if len(differing) == 1 else None


def version_file(image_id: str, version: str, suffix: str = ".png") -> str:
    """The file of an image's version. An id that is no file name, or too long for one, is told apart by a digest."""
    safe = "".join(char if char.isalnum() or char in "-_." else "_" for char in image_id)
    if safe != image_id or len(safe.encode()) > LONGEST_NAME:
        readable = safe.encode()[:LONGEST_NAME].decode(errors="ignore")
        safe = f"{readable}-{sha256(image_id.encode()).hexdigest()[:12]}"
    return f"{safe}-{version}{suffix}"


def version_probes(made: Replaced, original_suffix: str) -> list[Probe]:
    """Eight questions: about the word and about the decoy, on the original and on its three versions."""
    probes = []
    facts = {"original_image": made.positive.image, "word_region": list(made.positive.regions[0])}
    if made.glyph is not None:
        facts["edit_region"] = list(made.glyph)
    for version, labels in LABELS.items():
        suffix = original_suffix if version == ORIGINAL else ".png"
        for asked, probe, label in zip(("source", "target"), (made.positive, made.negative), labels, strict=True):
            probes.append(
                replace(
                    probe,
                    id=f"{made.image_id}:{version}-{asked}",
                    image=version_file(made.image_id, version, suffix),
                    label=label,
                    source_text=made.negative.target_text if version == REPLACEMENT else made.positive.target_text,
                    regions=made.positive.regions,
                    kind=f"{version}_{asked}",
                    view=AS_IT_IS if version == ORIGINAL else version,
                    extra=dict(facts),
                )
            )
    return probes


def edit_region_probe(made: Replaced) -> Probe | None:
    """The question about the decoy on the replacement, with the substituted glyph as its only region."""
    if made.glyph is None:
        return None
    return replace(
        made.negative,
        id=f"{made.image_id}:edit-region",
        image=version_file(made.image_id, REPLACEMENT),
        label="yes",
        source_text=made.negative.target_text,
        regions=(made.glyph,),
        kind="edit_region",
        extra={"original_image": made.positive.image, "word_region": list(made.positive.regions[0])},
    )


def save_versions(made: Iterable[Replaced], root: Path, folder: Path) -> None:
    """Rendered versions as PNG and the original byte for byte: one folder holds all that a run needs."""
    make_folder(folder)
    for one in made:
        original = resolve_image(root, one.positive.image)
        write_whole(folder / version_file(one.image_id, ORIGINAL, original.suffix), original.read_bytes())
        for version, image in one.versions.items():
            content = stored_as(image, "PNG", compress_level=3)
            write_whole(folder / version_file(one.image_id, version), content)


# Does an OCR engine read each version of a replaced image as intended? What it cannot read proves nothing.

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
        found = [(word in shown[version], decoy in shown[version]) for version in (REPLACEMENT, SHAM, ERASE)]
        return found == [(False, True), (True, False), (False, False)]

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
        crop = stored_as(image.crop(padded(box, image.size)), "JPEG", quality=QUALITY)
        findings = self._engine.read(np.asarray(Image.open(io.BytesIO(crop)).convert("RGB")))
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
    rows = read_table(path)
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
