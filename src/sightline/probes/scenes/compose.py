"""What a scene is made of, the pen that page designs write with, and where a word ends up after rotation."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from typing import NamedTuple

from sightline.probes.scenes.fonts import SIZES, Face, faces
from sightline.probes.scenes.lexicon import Lexicon, Split

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
