"""Text replacement: the decoy painted where the word stood, beside two controls that repaint and that only erase.

A model that reads answers yes to the decoy on the replacement and no to it everywhere else. The sham, the same
repainting with the original word, tells reading apart from an effect of painting; the erasure tells it from guessing.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path

from PIL import Image

from sightline.controls.rendering import (
    Lettering,
    Pixels,
    common_lettering,
    erased,
    font_files,
    glyph_box,
    ink_colour,
    lettered,
    outer_pixels,
)
from sightline.core.probe import ORIGINAL as AS_IT_IS
from sightline.core.probe import Box, Label, Probe
from sightline.errors import SightlineError
from sightline.places.writing import make_folder, write_whole
from sightline.probes.image_name import resolve_image
from sightline.probes.images import open_image

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
    lettering: Lettering
    versions: dict[str, Image.Image]
    glyph: Box | None
    """The one character that differs, as drawn in the replacement; None when more than one does."""

    @property
    def image_id(self) -> str:
        return self.positive.image_id


@dataclass
class Skipped:
    """Why images gave no replacement, counted."""

    reasons: Counter[str] = field(default_factory=Counter)


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
    skipped: Skipped | None = None,
    accept: Callable[[Replaced], bool] = lambda replaced: True,
) -> list[Replaced]:
    """The first ``limit`` images whose word can be replaced by its decoy and that ``accept`` (a screening) admits."""
    files = font_files(fonts)
    reasons = (skipped or Skipped()).reasons
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
    return Replaced(positive, negative, box, lettering, versions, glyph)


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
    for version, labels in LABELS.items():
        suffix = original_suffix if version == ORIGINAL else ".png"
        for asked, probe, label in zip(("source", "target"), (made.positive, made.negative), labels, strict=True):
            facts = {"original_image": made.positive.image, "word_region": list(made.positive.regions[0])}
            if made.glyph is not None:
                facts["edit_region"] = list(made.glyph)
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
                    extra=facts,
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
            content = io.BytesIO()
            image.save(content, "PNG", compress_level=3)
            write_whole(folder / version_file(one.image_id, version), content.getvalue())
