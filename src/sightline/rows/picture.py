"""One probe of a run as a picture: what of its image an arm kept, or several arms side by side."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from PIL import Image, ImageDraw, ImageFont

from sightline.core.probe import ORIGINAL
from sightline.errors import SightlineError
from sightline.geometry.coverage import Geometry, RegionGeometry
from sightline.geometry.marks import SWAPPED, SWAPPED_FOR, marks_of, overlay
from sightline.places.listing import Place
from sightline.probes.images import image_digest, image_file, open_image
from sightline.store.shard_files import unpack_cells, unpack_mask

FILE, PREVIEW = "file", "preview"
"""Where the pixels of an arm's picture come from."""
PER_LINE = 6
"""Pictures that stand side by side before a new line begins."""
GAP = 12
"""Pixels between them."""
CAPTION_SHARE, SMALLEST_TEXT, LARGEST_TEXT = 1 / 22, 11, 36
"""Height of a caption's letters: their share of a picture's width, and its bounds in pixels."""
LONGEST_ANSWER = 32
"""Characters of an answer in a caption."""
PAPER, INK = (255, 255, 255), (20, 20, 20)


@dataclass(frozen=True)
class ArmPicture:
    """Everything that the picture of one row is drawn from."""

    row: dict[str, Any]
    """Of ``run.rows``."""
    record: dict[str, Any]
    """Of ``run.images``: the image that the row is about."""
    probe: dict[str, Any]

    def pixels(self, images: Place | None) -> tuple[Image.Image, str]:
        """The image without any marks, and where it comes from.

        The file in ``images`` if it shows what the arm saw, otherwise the stored preview: what an intervention has
        painted over, or ``resize`` has shown smaller, is in no file.
        """
        image = str(self.record["image"])
        painted = self.probe.get("occlude") or ()
        own_view = self.row["view"] == self.probe.get("view", ORIGINAL) and "#fit=" not in self.record["image_key"]
        if images is None or not own_view:
            return _decoded(self.record), PREVIEW
        with image_file(images, image) as file:
            if image_digest(file) != self.record["digest"]:
                raise SightlineError(f"{images} holds another {image} than the one that was audited; name its folder")
        return open_image(images, image, occlude=[tuple(box) for box in painted]), FILE

    def drawn(self, image: Image.Image) -> Image.Image:
        """The image with the cells that the arm dropped dimmed and the probe's regions outlined."""
        cells = unpack_cells(self.record["cells"])
        kept = unpack_mask(self.row["kept_mask"], len(cells))
        packed = self.row["lineage_mask"]
        lineage = None if packed is None else unpack_mask(packed, len(cells))
        regions, roles = self.probe.get("regions") or (), self.probe.get("roles") or ()
        if self.swapped_box is not None:
            roles = [*(roles or [""] * len(regions)), SWAPPED]
            regions = [*regions, self.swapped_box]
        return overlay(image, cells, kept, regions, lineage=lineage, roles=roles)

    @property
    def swapped_box(self) -> list[float] | None:
        """Where a wrong answer stands on the page, if it does."""
        box = self.row.get("swapped_box")
        return list(box) if box is not None else None

    @property
    def caption(self) -> tuple[str, str]:
        """The arm, and in a line below it how it answered with how much of the evidence."""
        said = [f"{shortened(self.row['predicted'])}, {'right' if self.row['correct'] else 'wrong'}"]
        if _is_number(self.row.get("margin")):
            said.append(f"margin {self.row['margin']:+.2f}")
        if _is_number(self.row.get("score")):
            said = [quoted(self.row["predicted"]), f"score {self.row['score']:.2f}"]
        if _is_number(self.row["ecr"]):
            said.append(f"coverage {self.row['ecr']:.2f}")
        return str(self.row["arm"]), " · ".join(said)

    @property
    def heading(self) -> list[str]:
        """What stands above several arms: of an open question the question, what is accepted, and what letters mean."""
        if not self.probe.get("answers"):
            return []
        accepted = ", ".join(quoted(answer) for answer in dict.fromkeys(self.probe["answers"]))
        marks = marks_of(self.probe.get("roles") or (), len(self.probe.get("regions") or ()))
        marks += [SWAPPED_FOR] if self.swapped_box is not None else []
        named = ", ".join(f"{mark.letter} {mark.words}" for mark in dict.fromkeys(marks) if mark.letter)
        return [str(self.probe["question"]), f"accepted: {accepted}{f' · {named}' if named else ''}"]


FOUND = 0.5
"""A text of which less was written than this counts as lost."""


def lost_texts(hits: Sequence[float] | None, probe: Mapping[str, Any]) -> list[list[float]] | None:
    """Boxes of the texts of a page that a transcription lacks; None where an answer is no transcription of it.

    ``hits`` say of each text of the page how much of it was written.
    """
    page = (probe.get("extra") or {}).get("page") or ()
    if hits is None or len(hits) != len(page):
        return None
    return [[round(float(end), 6) for end in box] for hit, (_, *box) in zip(hits, page, strict=True) if hit < FOUND]


def shortened(answer: object) -> str:
    """An answer that fits under a picture, on one line."""
    words = " ".join(str(answer).split())
    return words if len(words) <= LONGEST_ANSWER else f"{words[: LONGEST_ANSWER - 1]}…"


def quoted(answer: object) -> str:
    """An answer in words in quotation marks, or that nothing was said."""
    return f"“{words}”" if (words := shortened(answer)) else "nothing"


def draw_arms(arms: Sequence[ArmPicture], images: Place | None) -> Image.Image:
    """One arm's picture as it is; several side by side in one height, each under its caption.

    ``info["sources"]`` says of each arm whether its pixels are those of the file or of the preview.
    """
    found = [arm.pixels(images) for arm in arms]
    if len(arms) == 1:
        picture = arms[0].drawn(found[0][0])
    else:
        height = max(image.height for image, _ in found)
        told = next((arm for arm in arms if arm.swapped_box is not None), arms[0])
        drawn = [arm.drawn(_as_high(image, height)) for arm, (image, _) in zip(arms, found, strict=True)]
        picture = _side_by_side(drawn, [arm.caption for arm in arms], told.heading)
    picture.info["sources"] = [source for _, source in found]
    return picture


def _side_by_side(
    pictures: Sequence[Image.Image], captions: Sequence[tuple[str, str]], heading: Sequence[str]
) -> Image.Image:
    """Pictures of one height in lines of at most ``PER_LINE``, below the lines of a heading, if there are any."""
    fonts = [_font(picture.width, caption) for picture, caption in zip(pictures, captions, strict=True)]
    line = max(round(1.4 * font.size) for font in fonts)
    step = pictures[0].height + 2 * line + 2 * GAP
    rows = [pictures[start : start + PER_LINE] for start in range(0, len(pictures), PER_LINE)]
    width = max(sum(picture.width + GAP for picture in row) for row in rows) + GAP
    written = [(text, _font(width - 2 * GAP, (text, ""), fonts[0].size)) for text in heading]
    top = sum(round(1.4 * font.size) for _, font in written) + (GAP if written else 0)
    sheet = Image.new("RGB", (width, top + step * len(rows)), PAPER)
    draw = ImageDraw.Draw(sheet)
    x, y = 0, GAP // 2
    for text, font in written:
        draw.text((GAP, y), text, fill=INK, font=font)
        y += round(1.4 * font.size)
    for place, (picture, caption, font) in enumerate(zip(pictures, captions, fonts, strict=True)):
        x, y = (x if place % PER_LINE else GAP), top + place // PER_LINE * step
        for number, text in enumerate(caption):
            draw.text((x, y + GAP // 2 + number * line), text, fill=INK, font=font)
        sheet.paste(picture, (x, y + GAP + 2 * line))
        x += picture.width + GAP
    return sheet


def _font(width: int, caption: tuple[str, str], largest: float = LARGEST_TEXT) -> ImageFont.FreeTypeFont:
    """As large as the width allows: the longer line of the caption must fit."""
    size = int(np.clip(width * CAPTION_SHARE, SMALLEST_TEXT, largest))
    font = ImageFont.load_default(size)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise SightlineError("this build of Pillow has no FreeType, so that captions cannot be written")
    while size > SMALLEST_TEXT and max(font.getlength(text) for text in caption) > width:
        size -= 1
        font = font.font_variant(size=size)
    return font


def _as_high(image: Image.Image, height: int) -> Image.Image:
    if image.height == height:
        return image
    return image.resize((max(1, round(image.width * height / image.height)), height), Image.Resampling.BICUBIC)


def _decoded(record: dict[str, Any]) -> Image.Image:
    try:
        with Image.open(io.BytesIO(record["preview"])) as stored:
            return stored.convert("RGB")
    except (OSError, ValueError, TypeError, Image.DecompressionBombError):
        raise SightlineError(f"the run holds no readable preview of {record['image_key']}; name --images") from None


def _is_number(value: Any) -> bool:
    return value is not None and bool(np.isfinite(value))


# Masks that a run has stored, measured against regions: those of its probes, or others that somebody names.

Boxes = Sequence[Sequence[float]]
NEEDED = ("probe_id", "image_key", "kept_mask", "lineage_mask")
"""Columns that a row is measured by."""


def stored_geometry(rows: pa.Table, images: pa.Table, regions: Mapping[str, Boxes]) -> list[Geometry | None]:
    """One geometry per row, from the very mask that was answered from; None for a probe without regions.

    ``rows`` are some of a run's, ``images`` all of its images, ``regions`` boxes by probe id in fractions of the image.
    Coverage by lineage and by anchors are both there, as in a row.
    """
    lines = rows.select(list(NEEDED)).to_pylist()
    groups: dict[tuple[str, str], list[int]] = {}
    for place, line in enumerate(lines):
        if regions.get(line["probe_id"]):
            groups.setdefault((line["image_key"], line["probe_id"]), []).append(place)
    records = images.select(["image_key", "cells"]).to_pylist()
    cells = {record["image_key"]: record["cells"] for record in records}
    found: list[Geometry | None] = [None] * len(lines)
    for (image, probe), places in groups.items():
        own = unpack_cells(cells[image]).astype(np.float64)
        plane = RegionGeometry(own, regions[probe])
        # What was not merged has its anchors for a lineage.
        masks = ([lines[place][name] or lines[place]["kept_mask"] for place in places] for name in NEEDED[-2:])
        kept, lineage = (np.stack([unpack_mask(mask, len(own)) for mask in each]) for each in masks)
        for place, geometry in zip(places, plane.measure_many(lineage, kept), strict=True):
            found[place] = geometry
    return found


# What a run's probes ask, beside the rows that answer it.

TEXTS = ("question", "target_text", "source_text")
"""Keys of a probe's record, and columns of a frame."""
OF_OPEN_QUESTIONS = ("answers", "roles")
"""The same of probes that are answered in words: every accepted answer, and what each region is to the question."""
ASKED = ["probe_id", "view"]
"""Columns that tell which record a row answers."""


def with_texts(frame: pd.DataFrame, probes: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """The rows with the question, the queried string and what stands in the regions, behind all other columns.

    Open questions come with their accepted answers and the roles of their regions too, as tuples.

    A control set asks the same probe about several views of its image, perhaps in other words: a row gets those of its
    own view. A view that an intervention made is asked about as the original is.
    """
    by_view: dict[tuple[str, str], Mapping[str, Any]] = {}
    by_id: dict[str, Mapping[str, Any]] = {}
    is_open = False
    for probe in probes:
        is_open = is_open or bool(probe.get("answers"))
        name, view = str(probe["id"]), str(probe.get("view", ORIGINAL))
        by_view.setdefault((name, view), probe)
        if view == ORIGINAL or name not in by_id:
            by_id[name] = probe
    told = frame[ASKED].drop_duplicates()  # one lookup per probe and view, however many arms answered it
    asked = [by_view.get((name, view)) or by_id.get(name, {}) for name, view in told.itertuples(index=False)]
    for text in TEXTS:
        if text not in frame:
            told[text] = [probe.get(text) for probe in asked]
    for key in OF_OPEN_QUESTIONS if is_open else ():
        if key not in frame:
            told[key] = [tuple(probe.get(key) or ()) for probe in asked]
    return frame.merge(told, how="left", on=ASKED)
