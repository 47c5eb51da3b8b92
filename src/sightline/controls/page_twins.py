"""Twins of pages: the same layout with words that nobody can guess, to tell what was read from what was guessed.

A model that reads answers on the twin as well as on the page. One that fills in what is likely holds on the page, where
words and amounts have a prior, and falls on the twin, where letters are pronounceable nonsense and digits are drawn
anew. Labels that questions name stay, so that the question is the same on both.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFilter
from scipy.ndimage import maximum_filter, minimum_filter

from sightline.controls.text_replacement import Pixels, can_draw, font_files, load_font, outer_pixels
from sightline.core.probe import TWIN, Box, Probe

CONSONANTS, VOWELS = "bcdfghklmnprstvz", "aeiou"
_RUNS = re.compile(r"[^\W\d_]+|\d")
_WORD = re.compile(r"\w(?:\S*\w)?")
SCALE = 4
LANCZOS = Image.Resampling.LANCZOS
PageTexts = Sequence[tuple[str, Box]]


class Renaming:
    """Texts of one page -> texts of its twin. The same word becomes the same word wherever it stands on the page.

    A word is what stands between blanks, without marks around it: the amount of "$8.87" is that of "8.87".
    """

    def __init__(self, seed: str, kept: Collection[str] = ()) -> None:
        self._random = random.Random(sha256(seed.encode()).digest())
        self._known = {_folded(word): _folded(word) for text in kept for word in _WORD.findall(text)}
        self._used = set(self._known)

    def __call__(self, text: str) -> str:
        """The twin's text: as long, capital letters and marks where they were."""
        return _WORD.sub(lambda match: self._word(match[0]), text)

    def _word(self, word: str) -> str:
        key = _folded(word)
        if key not in self._known:
            self._known[key] = self._draw(key)
            self._used.add(self._known[key])
        return "".join(new.upper() if old.isupper() else new for old, new in zip(word, self._known[key], strict=True))

    def _draw(self, word: str) -> str:
        """Another word, new to the page where it is long enough for that; a text without letters and digits stays."""
        for _ in range(100):
            drawn = _RUNS.sub(self._run, word)
            if drawn != word and drawn not in self._used:
                break
        return drawn

    def _run(self, match: re.Match[str]) -> str:
        run = match[0]
        if run.isdigit():
            return self._random.choice([digit for digit in "123456789" if digit != run])
        start = self._random.random() < 0.5
        letters = (CONSONANTS if (place % 2 == 0) is start else VOWELS for place in range(len(run)))
        return "".join(self._random.choice(kind) for kind in letters)


def _folded(text: str) -> str:
    """Lower case, one character for each: what has no lower case of one character stays."""
    return "".join(char.lower() if len(char.lower()) == 1 else char for char in text)


# Painting: the ground as it would be without ink, then the new text as large as the ink was.


def repaint(image: Image.Image, texts: Iterable[tuple[str, str, Box]]) -> Image.Image:
    """The page with ``(old, new, box)`` repainted where they differ: size, colour and ground as they were."""
    files = font_files()
    drawn = image.convert("RGB")
    changed = [(old, new, outer_pixels(box, *image.size)) for old, new, box in texts if old != new]
    sized = [(old, new, box) for old, new, box in changed if box[2] - box[0] >= 4 and box[3] - box[1] >= 4]
    inks = [ink_of(drawn.crop(box)) for _, _, box in sized]
    font = closest_font([(old, ink[2]) for (old, _, _), ink in zip(sized, inks, strict=True)], files)
    for (_, _, box), (_, ground, extent) in zip(sized, inks, strict=True):  # all old ink goes before any new one
        drawn.paste(ground.crop(extent), (box[0] + extent[0], box[1] + extent[1]))
    for (old, new, box), (colour, _, extent) in zip(sized, inks, strict=True):
        file = font if can_draw(font, new) else next((file for file in files if can_draw(file, new)), font)
        placed = (box[0] + extent[0] + 1, box[1] + extent[1] + 1, box[0] + extent[2] - 1, box[1] + extent[3] - 1)
        _draw(drawn, old, new, placed, file, colour)
    return drawn


def ink_of(crop: Image.Image) -> tuple[tuple[int, int, int], Image.Image, Pixels]:
    """A text's colour, the ground without it, and the extent of its ink within the crop, a pixel wider on each side.

    Ink is what differs from the ground by more than half of the largest difference; the ground is the crop with its
    thin strokes closed (opened, on dark pages) and smoothed, so that shading and stains of the paper stay. Of the rows
    only those around the middle count: boxes of engines reach into the lines above and below.
    """
    pixels = np.asarray(crop.convert("L"), dtype=np.float32)
    dark_ink = float(np.median(pixels)) >= (float(pixels.min()) + float(pixels.max())) / 2
    reach = max(3, 2 * (min(crop.size) // 3) + 1)
    widest = maximum_filter if dark_ink else minimum_filter
    closed = Image.fromarray(widest(np.asarray(crop.convert("RGB")), size=(reach, reach, 1)))
    ground = closed.filter(ImageFilter.GaussianBlur(reach / 2))
    contrast = np.abs(np.asarray(ground.convert("L"), dtype=np.float32) - pixels)
    ink = contrast > max(8.0, 0.5 * float(contrast.max()))
    if not ink.any():
        return (20, 20, 20) if dark_ink else (235, 235, 235), ground, (0, 0, *crop.size)
    top, bottom = _middle_rows(ink.any(axis=1))
    columns = np.flatnonzero(ink[top:bottom].any(axis=0))
    darkest = np.asarray(crop.convert("RGB"))[top:bottom][contrast[top:bottom] >= 0.95 * contrast[top:bottom].max()]
    red, green, blue = (int(value) for value in np.median(darkest, axis=0))
    extent = (
        max(0, int(columns[0]) - 1), max(0, top - 1),
        min(crop.width, int(columns[-1]) + 2), min(crop.height, bottom + 1),
    )  # fmt: skip
    return (red, green, blue), ground, extent


def _middle_rows(inked: np.ndarray) -> tuple[int, int]:
    """First and last + 1 of the rows with ink around the middle; single empty rows, below dots say, do not end them."""
    rows = np.flatnonzero(inked)
    bands = np.split(rows, np.flatnonzero(np.diff(rows) > 2) + 1)
    middle = len(inked) / 2
    band = min(bands, key=lambda each: max(each[0] - middle, middle - each[-1], 0))
    return int(band[0]), int(band[-1]) + 1


def closest_font(texts: Sequence[tuple[str, Pixels]], files: Sequence[Path]) -> Path:
    """The font in which the old texts would be about as wide for their height as they are on the page."""

    def strain(file: Path) -> float:
        strains = []
        for text, (left, top, right, bottom) in texts:
            if right > left and bottom > top and can_draw(file, text):
                box = load_font(file, 64).getbbox(text)
                own = (box[2] - box[0]) / max(1.0, box[3] - box[1])
                strains.append(abs(math.log(max(own, 0.01) * (bottom - top) / (right - left))))
        return float(np.median(strains)) if strains else math.inf

    return min(files, key=strain)


def _draw(page: Image.Image, old: str, new: str, box: Pixels, file: Path, colour: tuple[int, int, int]) -> None:
    """Draws the new text on the line of the old one, whose ink filled the box: as wide, in letters of the same size.

    Enlarged, cut to its ink, then reduced: s = height of the box / height of the old text in this font.
    """
    width, height = max(1, box[2] - box[0]), max(1, box[3] - box[1])
    font = load_font(file, min(256, max(16, height * SCALE)))
    known = old if can_draw(file, old) else new
    (_, line_top, _, line_bottom), (left, top, right, bottom) = (font.getbbox(text) for text in (known, new))
    if right <= left or bottom <= top:
        return
    scale = height / max(1.0, line_bottom - line_top)
    size = (math.ceil(right - left), math.ceil(bottom - top))
    stencil = Image.new("L", size)
    ImageDraw.Draw(stencil).text((-left, -top), new, font=font, fill=255)
    placed = (width, max(1, round(size[1] * scale)))
    corner = (box[0], round(box[1] + (top - line_top) * scale))
    page.paste(colour, (*corner, corner[0] + placed[0], corner[1] + placed[1]), stencil.resize(placed, LANCZOS))


# The probes of a twin: the same questions, with the twin's answers.


def twin_page(texts: PageTexts, seed: str, kept: Collection[str] = ()) -> tuple[list[str], Renaming]:
    """The twin's texts in the order of the page's, and what renamed them. ``kept``: labels that questions name."""
    renaming = Renaming(seed, kept)
    return [renaming(text) for text, _ in texts], renaming


def twin_probes(probes: Sequence[Probe], images: Mapping[str, str], renamings: Mapping[str, Renaming]) -> list[Probe]:
    """The probes about twins: ``images`` (image id -> file of the twin) and ``renamings`` by image id.

    Answers, decoys and texts of the page are renamed; questions stay but for the texts they quote that were renamed.
    A yes/no question about a word becomes one about the word that stands there now.
    """
    found = []
    for probe in probes:
        if probe.image_id not in images:
            continue
        rename = renamings[probe.image_id]
        target = probe.target_text if probe.is_open else rename(probe.target_text)
        page = [[rename(str(text)), *box] for text, *box in probe.extra.get("page", ())]
        found.append(
            replace(
                probe,
                image=images[probe.image_id],
                view=TWIN,
                question=probe.question.replace(f'"{probe.target_text}"', f'"{target}"'),
                target_text=target,
                source_text=rename(probe.source_text),
                answers=tuple(rename(answer) for answer in probe.answers),
                decoy=rename(probe.decoy) if probe.decoy else "",
                extra={**probe.extra, "original_image": probe.image, **({"page": page} if page else {})},
            )
        )
    return found
