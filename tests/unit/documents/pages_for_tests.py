"""Pages that tests of documents share: drawn ones, and readings that no engine has made."""

from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

import sightline
from sightline.boxes.detection import TextsRead
from sightline.boxes.detectors import FoundText
from sightline.documents.reading import PageReading, combine

FONT = Path(sightline.__file__).parent / "assets/fonts/sans-00.ttf"
WIDTH, HEIGHT = 1000, 800

INVOICE = """
100 40  ACME Trading Ltd
100 100 Invoice No: INV-20417
600 100 Date
700 100 : 26-06-2018 17:08
100 160 Bill To:
100 190 Northern Lights
100 300 Item
400 300 Qty
600 300 Price
100 340 Copper wire
400 340 12
600 340 48.20
100 380 Steel plate
400 380 3
600 380 91.75
100 500 Total
600 500 $139.95
100 540 Cash
600 540 150.00
"""


def found(listed: str, confidence: float = 0.999) -> tuple[FoundText, ...]:
    """Texts listed as ``x y text`` in pixels, each 24 high and 12 wide a sign; ``text ~0.5`` is one read with 0.5."""
    texts = []
    for line in listed.strip().splitlines():
        x, y, text = line.split(maxsplit=2)
        text, _, sure = text.partition(" ~")
        left, top, right, bottom = int(x), int(y), int(x) + 12 * len(text), int(y) + 24
        corners = ((left, top), (right, top), (right, bottom), (left, bottom))
        outline = tuple((float(a), float(b)) for a, b in corners)
        texts.append(FoundText(outline, float(sure or confidence), text))
    return tuple(texts)


def read(listed: str, second: str | None = None, image: str = "page.png") -> PageReading:
    """What two engines make of a page, or one."""
    other = None if second is None else TextsRead(WIDTH, HEIGHT, found(second, 0.9))
    return combine(image, TextsRead(WIDTH, HEIGHT, found(listed)), other)


def drawn(listed: str, scale: int = 1) -> Image.Image:
    """The listed texts as a page."""
    page = Image.new("RGB", (WIDTH * scale, HEIGHT * scale), "white")
    draw = ImageDraw.Draw(page)
    font = ImageFont.truetype(str(FONT), 24 * scale)
    for line in listed.strip().splitlines():
        x, y, text = line.split(maxsplit=2)
        draw.text((int(x) * scale, int(y) * scale), text, fill="black", font=font)
    return page
