"""What a scene is made of, the pen that page designs write with, and where a word ends up after rotation."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

import sightline
from lab.scenes.lexicon import Lexicon, Split
from sightline.errors import SightlineError

# The shipped fonts by role, and the integer metrics that place glyphs exactly where Pillow's text drawing does.

FONT_FOLDER = Path(sightline.__file__).parent / "assets" / "fonts"
SIZES = (14, 15, 16, 17, 18, 19, 20, 22, 24)
CHARACTERS = "".join(map(chr, range(33, 127)))
"""Every character that a scene can hold, apart from the blank."""


@dataclass(frozen=True)
class Face:
    """One font at one size. Offsets are in pixels from the point given to ``ImageDraw.text``."""

    file: str
    style: str
    size: int
    advance: dict[str, int]
    ink: dict[str, tuple[int, int, int, int]]
    """Bounding box (x1, y1, x2, y2) of each glyph's pixels."""
    top: int
    """Highest ink of any glyph: negative or positive."""
    bottom: int

    @property
    def height(self) -> int:
        return self.bottom - self.top

    @property
    def blank(self) -> int:
        return max(3, round(0.3 * self.size))

    def width(self, text: str) -> int:
        advance = self.advance
        return sum([advance[character] for character in text])

    def ink_box(self, text: str) -> tuple[int, int, int, int]:
        """Bounding box of the pixels of ``text`` relative to its origin."""
        ink, advance = self.ink, self.advance
        left, top, right, bottom, x = 99, 99, -99, -99, 0
        for character in text:
            x1, y1, x2, y2 = ink[character]
            left, top, right, bottom = min(left, x + x1), min(top, y1), max(right, x + x2), max(bottom, y2)
            x += advance[character]
        return left, top, right, bottom

    def load(self) -> ImageFont.FreeTypeFont:
        return load_font(self.file, self.size)


@cache
def load_font(file: str, size: int) -> ImageFont.FreeTypeFont:
    """Basic layout: the shipped subsets carry no kerning, so a word is its glyphs at whole-pixel advances."""
    return ImageFont.truetype(str(FONT_FOLDER / file), size, layout_engine=ImageFont.Layout.BASIC)


@cache
def font_files(role: Split) -> tuple[tuple[str, str], ...]:
    """(file, style) of the fonts of one role, in catalogue order."""
    try:
        entries = json.loads((FONT_FOLDER / "fonts.json").read_text(encoding="utf-8"))
    except OSError as problem:
        raise SightlineError(f"{FONT_FOLDER}: fonts are missing ({problem}); reinstall the package") from None
    return tuple((entry["file"], entry["style"]) for entry in entries if entry["role"] == role)


@cache
def faces(role: Split) -> tuple[tuple[Face, ...], ...]:
    """Faces of one role: [font][size], in the order of ``font_files`` and ``SIZES``."""
    return tuple(tuple(_measure(file, style, size) for size in SIZES) for file, style in font_files(role))


def _measure(file: str, style: str, size: int) -> Face:
    font = load_font(file, size)
    ink = {character: _whole(font.getbbox(character)) for character in CHARACTERS}
    advance = {character: round(font.getlength(character)) for character in CHARACTERS}
    top, bottom = min(box[1] for box in ink.values()), max(box[3] for box in ink.values())
    return Face(file, style, size, advance, ink, top, bottom)


def _whole(box: tuple[float, float, float, float]) -> tuple[int, int, int, int]:
    return int(box[0]), int(box[1]), int(box[2]), int(box[3])


CANVAS = 448
"""Width and height in pixels: 14 x 14 visual tokens of 32 px, so that nothing is resized on the way to the model."""
MAX_SHAPES = 40
MAX_GLYPHS = 576

Colour = tuple[int, int, int]
PixelBox = tuple[float, float, float, float]


class DrawnShape(NamedTuple):
    """A filled rectangle, right and bottom exclusive. A rule is a thin one, a frame two nested ones."""

    x1: int
    y1: int
    x2: int
    y2: int
    colour: Colour


class DrawnWord(NamedTuple):
    """One string, drawn with its origin at (x, y) before the scene is rotated."""

    text: str
    font: int
    size: int
    """Index into ``SIZES``."""
    x: int
    y: int
    colour: Colour


class LabelledValue(NamedTuple):
    """A value and the word beside it that says what it is."""

    label: DrawnWord
    value: DrawnWord


@dataclass
class Scene:
    """Everything needed to draw one image; two renderers (Pillow and the batched raster) read the same record."""

    kind: str
    role: Split
    background: Colour
    shapes: list[DrawnShape] = field(default_factory=list)
    words: list[DrawnWord] = field(default_factory=list)
    angle: float = 0.0
    """Degrees, counter-clockwise about the centre of the canvas."""
    light: tuple[float, float] = (0.0, 0.0)
    """Brightness added at the right and at the bottom edge (subtracted at the opposite ones)."""
    blur: float = 0.0
    """Share of a 3 x 3 mean that replaces each pixel."""
    noise: float = 0.0
    """Standard deviation of the gray noise, in levels of 0..255."""
    pairs: list[LabelledValue] = field(default_factory=list)
    """Values that stand alone beside a label of their own, where the design writes such."""
    total: LabelledValue | None = None
    """The total of a bill; not among the pairs."""

    def face(self, word: DrawnWord) -> Face:
        return faces(self.role)[word.font][word.size]

    def box(self, word: DrawnWord) -> PixelBox:
        """Axis-aligned bounding box (x1, y1, x2, y2) of the rotated ink, in pixels."""
        x1, y1, x2, y2 = self.upright_box(word)
        if not self.angle:
            return x1, y1, x2, y2
        corners = [rotate(x, y, self.angle) for x in (x1, x2) for y in (y1, y2)]
        xs, ys = [corner[0] for corner in corners], [corner[1] for corner in corners]
        return min(xs), min(ys), max(xs), max(ys)

    def upright_box(self, word: DrawnWord) -> PixelBox:
        """Bounding box of the ink before the scene is turned: what stands in one line is told by this one."""
        left, top, right, bottom = self.face(word).ink_box(word.text)
        return float(word.x + left), float(word.y + top), float(word.x + right), float(word.y + bottom)


def rotate(x: float, y: float, angle: float) -> tuple[float, float]:
    """Where the point (x, y) lies after the canvas was turned counter-clockwise by ``angle`` degrees."""
    cos, sin, half = math.cos(math.radians(angle)), math.sin(math.radians(angle)), CANVAS / 2
    dx, dy = x - half, y - half
    return half + dx * cos + dy * sin, half - dx * sin + dy * cos


def inside(box: PixelBox) -> bool:
    return box[0] >= 0 and box[1] >= 0 and box[2] <= CANVAS and box[3] <= CANVAS


class Pen:
    """Writes words and rectangles into a scene; refuses what would leave the canvas or exceed the glyph count."""

    def __init__(self, rng: random.Random, role: Split, scene: Scene) -> None:
        self.rng, self.scene = rng, scene
        self.lexicon = Lexicon(role)
        self.faces = faces(role)
        self.glyphs = 0

    def font(self, style: str | None = None) -> int:
        """A font at random; of the given style where there is one."""
        if style is not None:
            found = [index for index, sized in enumerate(self.faces) if sized[0].style == style]
            if found:
                return self.rng.choice(found)
        return self.rng.randrange(len(self.faces))

    def size(self, low: int = 14, high: int = 20) -> int:
        """Index of a size between low and high pixels."""
        return self.rng.choice([index for index, size in enumerate(SIZES) if low <= size <= high])

    def write(self, text: str, font: int, size: int, x: int, top: int, colour: Colour, limit: int = CANVAS - 3) -> int:
        """Puts ``text`` with its highest possible ink at ``top``. Returns the x after it, or -1 if it does not fit."""
        face = self.faces[font][size]
        end = x + face.width(text)
        if end > limit or x < 1 or top < 0 or top + face.height > CANVAS or self.glyphs + len(text) > MAX_GLYPHS:
            return -1
        self.scene.words.append(DrawnWord(text, font, size, x, top - face.top, colour))
        self.glyphs += len(text)
        return end

    def row(
        self, texts: list[str], font: int, size: int, x: int, top: int, colour: Colour, limit: int, gap: int = 0
    ) -> int:
        """Several words with blanks between them, as far as they fit. Returns the x after the last one."""
        step = self.faces[font][size].blank + gap
        for text in texts:
            end = self.write(text, font, size, x, top, colour, limit)
            if end < 0:
                break
            x = end + step
        return x

    def right(self, text: str, font: int, size: int, right: int, top: int, colour: Colour) -> int:
        """A word that ends at ``right``. Returns the x where it begins."""
        x = right - self.faces[font][size].width(text)
        self.write(text, font, size, x, top, colour, right)
        return x

    def centred(self, texts: list[str], font: int, size: int, left: int, right: int, top: int, colour: Colour) -> None:
        face = self.faces[font][size]
        width = sum(face.width(text) for text in texts) + face.blank * (len(texts) - 1)
        while texts and width > right - left:
            width -= face.width(texts[-1]) + face.blank
            texts = texts[:-1]
        self.row(texts, font, size, max(left, (left + right - width) // 2), top, colour, right)

    def fill(self, x1: int, y1: int, x2: int, y2: int, colour: Colour) -> None:
        if len(self.scene.shapes) < MAX_SHAPES and x2 > x1 and y2 > y1:
            self.scene.shapes.append(DrawnShape(x1, y1, x2, y2, colour))

    def frame(self, x1: int, y1: int, x2: int, y2: int, line: Colour, inner: Colour, width: int = 1) -> None:
        self.fill(x1, y1, x2, y2, line)
        self.fill(x1 + width, y1 + width, x2 - width, y2 - width, inner)

    def height(self, font: int, size: int) -> int:
        return self.faces[font][size].height

    def paper(self, dark_share: float = 0.25) -> Colour:
        """A surface to write on: mostly light, sometimes dark."""
        base = self.rng.randint(5, 75) if self.rng.random() < dark_share else self.rng.randint(180, 250)
        return self._near(base, 22)

    def ink(self, surface: Colour) -> Colour:
        """A colour that can be read on ``surface``: at least 100 levels darker or lighter on average."""
        level = sum(surface) // 3
        base = self.rng.randint(0, level - 110) if level > 127 else self.rng.randint(level + 110, 255)
        return self._near(base, 30)

    def shade(self, surface: Colour, amount: int = 22) -> Colour:
        return self._shift(surface, amount)

    def _near(self, base: int, spread: int) -> Colour:
        return self._shift((base, base, base), spread)

    def _shift(self, colour: Colour, spread: int) -> Colour:
        draw = self.rng.randint
        red, green, blue = (max(0, min(255, level + draw(-spread, spread))) for level in colour)
        return red, green, blue


# Draws a scene with Pillow: the reference renderer, and the one that the shipped probe sets were drawn with.


def draw(scene: Scene, seed: int = 0) -> Image.Image:
    """RGB image, CANVAS x CANVAS. ``seed`` drives the noise alone."""
    image = Image.new("RGB", (CANVAS, CANVAS), scene.background)
    brush = ImageDraw.Draw(image)
    for x1, y1, x2, y2, colour in scene.shapes:
        brush.rectangle((x1, y1, x2 - 1, y2 - 1), fill=colour)
    for word in scene.words:
        brush.text((word.x, word.y), word.text, font=scene.face(word).load(), fill=word.colour)
    if any(scene.light):
        image = _to_image(np.asarray(image, np.float32) + _ramp(scene.light))
    if scene.angle:
        image = image.rotate(scene.angle, Image.Resampling.BILINEAR, fillcolor=scene.background)
    if not (scene.blur or scene.noise):
        return image
    pixels = np.asarray(image, np.float32)
    if scene.blur:
        pixels = pixels * (1 - scene.blur) + _mean3(pixels) * scene.blur
    if scene.noise:
        pixels = pixels + np.random.default_rng(seed).normal(0.0, scene.noise, (CANVAS, CANVAS, 1)).astype(np.float32)
    return _to_image(pixels)


def _ramp(light: tuple[float, float]) -> NDArray[np.float32]:
    """(CANVAS, CANVAS, 1) brightness that rises linearly from -light to +light along x and along y."""
    axis = np.linspace(-1.0, 1.0, CANVAS, dtype=np.float32)
    return (light[0] * axis[None, :] + light[1] * axis[:, None])[..., None].astype(np.float32)


def _mean3(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    """3 x 3 mean, edges repeated."""
    padded = np.pad(pixels, ((1, 1), (1, 1), (0, 0)), mode="edge")
    rows = padded[:-2] + padded[1:-1] + padded[2:]
    total: NDArray[np.float32] = rows[:, :-2] + rows[:, 1:-1] + rows[:, 2:]
    return total / np.float32(9.0)


def _to_image(pixels: NDArray[np.float32]) -> Image.Image:
    return Image.fromarray(np.clip(pixels + 0.5, 0, 255).astype(np.uint8))
