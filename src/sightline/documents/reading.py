"""What is written on a page: RapidOCR's lines, and Tesseract's words as a second opinion where it is installed.

A text counts when its engine is sure enough, when both read the same at the same place, or when a person said so. What
does not count is kept with its reason: it is neither asked for nor taken for absent.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from sightline.boxes.detection import TextsRead, read_texts
from sightline.boxes.detectors import FoundText, detector_named
from sightline.core.probe import Box
from sightline.documents.settings import READING
from sightline.errors import SightlineError
from sightline.places.listing import Place
from sightline.probes.regions import clip_to_image, to_fractions
from sightline.progress import Progress

FIRST, SECOND = "rapidocr", "tesseract"
UNSURE, DISAGREE, ALONE, NO_TEXT = "unsure", "read differently", "read by one engine alone", "without a letter or digit"


@dataclass(frozen=True)
class PageLine:
    """A text of a page: a line as the engine found it, or the part of one that counts."""

    text: str
    box: Box
    confidence: float
    """Of the engine that read it, over the whole line."""
    agreed: bool = False
    """Whether the other engine reads the same here."""
    reason: str = ""
    """Why it does not count; empty for one that does."""
    by_people: bool = False
    """Whether it counts because somebody has looked."""


@dataclass(frozen=True)
class PageReading:
    """The texts of one page in reading order, those that count and the others."""

    image: str
    width: int
    height: int
    lines: tuple[PageLine, ...]
    dropped: tuple[PageLine, ...]
    second: tuple[PageLine, ...] = ()
    """Words as the second engine read them, whatever became of them."""
    problem: str = ""
    """What is wrong with the page as a whole, in words: then nothing is asked about it."""


def second_engine() -> str | None:
    """Tesseract, where it is installed."""
    try:
        detector_named(SECOND).require()
    except SightlineError:
        return None
    return SECOND


def read_pages(
    root: Place, names: Sequence[str], *, first: str = FIRST, second: str | None = None
) -> dict[str, PageReading]:
    """Image name -> its texts. Each engine reads an image once and for all: readings are remembered by its digest."""
    engines = [engine for engine in (first, second) if engine]
    with Progress("reading", len(engines) * len(names), "pages") as bar:
        readings = [read_texts(engine, root, names, tell=lambda name: bar.advance()) for engine in engines]
    return {name: combine(name, *(reading[name] for reading in readings)) for name in readings[0]}


def combine(image: str, first: TextsRead, second: TextsRead | None = None) -> PageReading:
    """What counts on a page that one engine has read, or two."""
    page = PageReading(image, first.width, first.height, (), (), problem=first.problem)
    if first.problem:
        return page
    if turned := _turned(first):
        return replace(page, problem=turned)
    words = [] if second is None else _placed(second)
    found: list[PageLine] = []
    for line in _placed(first):
        found += _judged(line, words)
    found += _unseen(words, found)
    return _settled(replace(page, second=tuple(words)), found)


def apply_decisions(page: PageReading, said: Mapping[tuple[str, Box], str]) -> PageReading:
    """The page where a person's word counts: a reading that was dropped and its box -> what stands there."""
    texts = {(reading, rounded_box(box)): text for (reading, box), text in said.items()}
    dropped = []
    for line in page.dropped:
        text = texts.get((line.text, rounded_box(line.box)), "")
        sure = replace(line, text=text, confidence=1.0, reason="", by_people=True)
        dropped.append(sure if any(sign.isalnum() for sign in text) else line)
    return _settled(page, [*page.lines, *dropped]) if dropped else page


def rounded_box(box: Box) -> Box:
    """A box by which a text is found again."""
    x1, y1, x2, y2 = (round(side, 5) for side in box)
    return x1, y1, x2, y2


def _settled(page: PageReading, found: list[PageLine]) -> PageReading:
    """The page with its texts in reading order, and what is wrong with it if none counts."""
    found = [line for row in rows_of(found) for line in row]
    counted = tuple(line for line in found if not line.reason)
    dropped = tuple(line for line in found if line.reason)
    problem = "" if found else "no text was found on it"
    if found and not counted:
        problem = f"none of its {len(found)} texts could be read for sure"
    return replace(page, lines=counted, dropped=dropped, problem=problem)


def rows_of(lines: Iterable[PageLine]) -> list[list[PageLine]]:
    """Texts that stand side by side, from top to bottom and left to right, on a page that is a little askew too."""
    rows: list[list[PageLine]] = []
    for line in sorted(lines, key=lambda line: (line.box[1] + line.box[3], line.box[0])):
        if rows and share_along(rows[-1][-1].box, line.box, 1) > 0.5:
            rows[-1].append(line)
        else:
            rows.append([line])
    return [sorted(row, key=lambda line: line.box[0]) for row in rows]


def share_along(one: Box, other: Box, axis: int) -> float:
    """What two boxes share along x (0) or y (1), as a fraction of the smaller."""
    shared = min(one[axis + 2], other[axis + 2]) - max(one[axis], other[axis])
    return shared / max(min(one[axis + 2] - one[axis], other[axis + 2] - other[axis]), 1e-9)


def folded(text: str) -> str:
    """How two readings are compared: case and blanks do not matter, every sign does."""
    return "".join(unicodedata.normalize("NFKC", text).casefold().split())


def standing(text: str) -> re.Pattern[str]:
    """Finds a text in a line, case and blanks aside: a number that no digit touches, a word that no letter does."""
    signs = [re.escape(sign) for sign in folded(text)]
    sides = []
    for sign, number, word in ((text.strip()[:1], r"(?<!\d)(?<!\d[.,])", r"(?<![^\W\d_])"),
                               (text.strip()[-1:], r"(?![.,]?\d)", r"(?![^\W\d_])")):  # fmt: skip
        sides.append(number if sign.isdigit() else word if sign.isalpha() else "")
    return re.compile(sides[0] + r"\s*".join(signs) + sides[1], re.IGNORECASE)


def reasons(readings: Iterable[PageReading]) -> Counter[str]:
    """Why texts do not count, over several pages."""
    return Counter(line.reason for reading in readings for line in reading.dropped)


# Parts of a line. Engines give a line's box: a word's is the share of it that its characters take up.

_WIDTHS = {0.27: " .,:;'`!|ijl", 0.33: "ftrI()[]-/", 0.86: "mwMW@%"}
_WIDTH = {sign: width for width, signs in _WIDTHS.items() for sign in signs}
"""Of signs that are not as wide as others of their kind, in heights of the letters of Helvetica."""
_SLACK = 0.2
"""How much wider a part is taken to be on a side where it was cut off: widths differ from font to font."""


def part(line: PageLine, start: int, end: int) -> PageLine:
    """The characters from ``start`` to ``end`` of a line, with the box that they take up in it."""
    widths = [_WIDTH.get(sign, 0.7 if sign.isupper() else 0.55) for sign in line.text]
    left, top, right, bottom = line.box
    scale = (right - left) / (sum(widths) or 1.0)
    x1 = max(left, left + scale * (sum(widths[:start]) - (_SLACK if start else 0.0)))
    x2 = min(right, left + scale * (sum(widths[:end]) + _SLACK)) if end < len(widths) else right
    return replace(line, text=line.text[start:end], box=(x1, top, x2, bottom))


def words_of(line: PageLine) -> list[PageLine]:
    """The words of a line, each with its box."""
    return [part(line, *match.span()) for match in re.finditer(r"\S+", line.text)]


# Which texts count.


def _placed(read: TextsRead) -> list[PageLine]:
    """Texts with upright boxes in fractions of the image; those without a place in it are left out."""
    found = []
    for text in read.texts:
        box = clip_to_image(to_fractions(_upright(text), read.width, read.height))
        if box is not None:
            found.append(PageLine(" ".join(text.text.split()), box, text.confidence))
    return found


def _judged(line: PageLine, words: Sequence[PageLine]) -> list[PageLine]:
    """A line of the first engine: whole where it counts; else its words one by one, as far as the second agrees."""
    if not any(sign.isalnum() for sign in line.text):
        return [replace(line, reason=NO_TEXT)]
    here = words_in(line.box, words)
    if folded("".join(word.text for word in here)) == folded(line.text):
        return [replace(line, text=_spaced(line.text, here), agreed=True)]
    sure = line.confidence >= READING["sure"]
    if not here:
        return [line if sure else replace(line, reason=UNSURE)]
    pieces = []
    for word in words_of(line):
        same = [other for other in here if folded(other.text) == folded(word.text) and _meets(word.box, other.box)]
        pieces.append(replace(word, agreed=bool(same), box=same[0].box if same else word.box))
    if sure:
        return [line]
    return [piece if piece.agreed else replace(piece, reason=DISAGREE) for piece in pieces]


def _spaced(text: str, words: Sequence[PageLine]) -> str:
    """The text with the blanks between letters that the second engine saw and the first lost."""
    ends = set(accumulate(len(folded(word.text)) for word in words))
    spaced, count = "", 0
    for sign, following in zip(text, [*text[1:], ""], strict=True):
        spaced += sign
        count += len(folded(sign))
        if count in ends and sign.isalpha() and following.isalpha():
            spaced += " "
    return spaced


def _unseen(words: Sequence[PageLine], lines: Sequence[PageLine]) -> list[PageLine]:
    """Words of the second engine where the first has found nothing: they never count, but something may stand there."""
    return [
        replace(word, reason=ALONE)
        for word in words
        if word.confidence >= READING["seen"]
        and any(sign.isalnum() for sign in word.text)
        and not any(_meets(word.box, line.box) for line in lines)
    ]


def words_in(box: Box, words: Iterable[PageLine]) -> list[PageLine]:
    """The words whose middle lies within a box, from left to right."""
    found = []
    for word in words:
        x, y = (word.box[0] + word.box[2]) / 2, (word.box[1] + word.box[3]) / 2
        if box[0] <= x <= box[2] and box[1] <= y <= box[3]:
            found.append(word)
    return sorted(found, key=lambda word: word.box[0])


def _meets(one: Box, other: Box) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]


def _turned(read: TextsRead) -> str:
    """What is said of a page whose text does not stand upright; empty for one that does."""
    texts = [text for text in read.texts if len(text.text) > 2]
    tall = sum(len(text.text) for text in texts if _is_tall(text))
    if tall > READING["turned_share"] * sum(len(text.text) for text in texts):
        return "its text runs upwards or downwards: turn the page, then read it again"
    sure = sorted(text.confidence for text in texts)
    if len(sure) > 2 and sure[len(sure) // 2] < READING["readable"]:
        return "hardly anything can be read for sure: is it upside down, blurred or in another script?"
    return ""


def _is_tall(text: FoundText) -> bool:
    left, upper, right, lower = _upright(text)
    return lower - upper > 1.5 * (right - left)


def _upright(text: FoundText) -> Box:
    """The upright box around a text, in pixels."""
    xs, ys = [x for x, _ in text.outline], [y for _, y in text.outline]
    return min(xs), min(ys), max(xs), max(ys)
