"""Designs whose values stand beside a label each: bill, sheet, register. Open questions are asked about these pairs.

They have seeds of their own (``compose_open``), so that the scenes of ``page_designs.compose`` stay as they are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from lab.scenes.compose import CANVAS, Colour, DrawnWord, LabelledValue, Pen, Scene
from lab.scenes.lexicon import Lexicon, Split
from lab.scenes.page_designs import DESIGNS, EDGE, lay_out
from sightline.probes.hard_pairs import normalise_word

TOTALS = (("TOTAL",), ("Total",), ("TOTAL:",), ("Total:",), ("GRAND", "TOTAL"), ("TOTAL", "DUE"), ("Total", "due"))
"""Spellings of the line that a bill's total stands on.

These words and the ones of ``SUMS`` are drawn in every split, whatever their checksum says: a question about the total
has to use the word. No other string is shared, and none of these is ever the answer to a question of a held-out set.
"""
SUMS = ("Subtotal", "Cash", "Change")
"""Other lines of a bill that hold an amount which is not the total."""
BILL_WORDS = frozenset({"total", "grand", "due", *(text.lower() for text in SUMS)})
LONGEST_LABEL = 10
"""Characters of a label, so that a question may name two of them."""
LONGEST_VALUE = 16

Maker = Callable[[random.Random], str]


class PairWriter:
    """Writes labels and values that occur once on the page, and notes which value belongs to which label."""

    def __init__(self, pen: Pen, taken: Iterable[str] = ()) -> None:
        self.pen = pen
        self.taken = set(taken)

    def fresh(self, make: Maker, longest: int) -> str:
        """A string that is not on the page yet."""
        while True:
            text = make(self.pen.rng)
            folded = normalise_word(text).casefold()
            if len(text) <= longest and len(folded) > 1 and folded not in self.taken:
                self.taken.add(folded)
                return text

    def label(self, colon_share: float = 0.3) -> str:
        return self.fresh(self.pen.lexicon.word, LONGEST_LABEL) + ":" * (self.pen.rng.random() < colon_share)

    def note(self, pair: LabelledValue | None) -> None:
        if pair is not None:
            self.pen.scene.pairs.append(pair)


def bill(pen: Pen) -> None:
    """A slip of paper: centred head, one item and its amount a line, sums, the total among them."""
    rng, lexicon, writer = pen.rng, pen.lexicon, PairWriter(pen, BILL_WORDS)
    width = rng.randint(230, 400)
    left = rng.randint(EDGE - 6, CANVAS - width - EDGE + 6)
    right = left + width
    surface = pen.paper(0.06)
    pen.fill(left, 0, right, CANVAS, surface)
    ink = pen.ink(surface)
    font, size = pen.font("mono" if rng.random() < 0.5 else None), pen.size(14, 20)
    head, head_size = (pen.font(), pen.size(17, 24)) if rng.random() < 0.6 else (font, size)
    left, right, y = left + 10, right - 10, rng.randint(EDGE, 28)
    for _ in range(rng.randint(1, 2)):
        pen.centred([lexicon.any(rng) for _ in range(rng.randint(1, 2))], head, head_size, left, right, y, ink)
        y += pen.height(head, head_size) + rng.randint(0, 6)
    step = pen.height(font, size) + rng.randint(2, 12)
    total = rng.choice(TOTALS)
    foot = [total, *((text.upper() if total[0].isupper() else text,) for text in rng.sample(SUMS, rng.randint(0, 2)))]
    rng.shuffle(foot)
    items = max(2, min(rng.randint(3, 9), (CANVAS - EDGE - y) // step - len(foot) - 1))

    def line(*texts: str) -> LabelledValue | None:
        """The word that names the line (its first, but for a grand total) and the amount; None if one does not fit."""
        face = pen.faces[font][size]
        amount = writer.fresh(lexicon.price, LONGEST_VALUE)
        begin, x = right - face.width(amount), left
        value = _written(pen, amount, font, size, begin, y, ink, right)
        words = []
        for text in texts:
            words.append(_written(pen, text, font, size, x, y, ink, begin - 8))
            x += face.width(text) + face.blank
        found = words[-1] if texts == ("GRAND", "TOTAL") else words[0]
        return _pair(found, value)

    for _ in range(items):
        if rng.random() < 0.1:
            pen.fill(left, y + 2, right, y + 3, pen.shade(ink))
            y += 6
        writer.note(line(writer.label(0.1)))
        y += step
    pen.fill(left, y + 2, right, y + 2 + rng.randint(1, 2), pen.shade(ink))
    y += rng.randint(6, 12)
    for texts in foot:
        written = line(*texts)
        if texts == total:
            pen.scene.total = written
        y += step
    if y < CANVAS - EDGE - step and rng.random() < 0.5:
        pen.centred([lexicon.code(rng)], font, size, left, right, y + 6, ink)


def sheet(pen: Pen) -> None:
    """A form: a title, then labels with a framed or underlined value to the right of each, in one or two columns."""
    rng, lexicon, writer = pen.rng, pen.lexicon, PairWriter(pen)
    surface = pen.paper(0.15)
    pen.fill(0, 0, CANVAS, CANVAS, surface)
    ink, field_surface = pen.ink(surface), pen.shade(surface, 10)
    label_font, label_size, value_font, value_size = pen.font(), pen.size(14, 19), pen.font(), pen.size(14, 20)
    value_ink = pen.ink(field_surface)
    y = rng.randint(EDGE, 24)
    title = [writer.fresh(lexicon.word, LONGEST_VALUE) for _ in range(2)]
    pen.row(title, pen.font(), pen.size(18, 24), EDGE + rng.randint(0, 60), y, ink, CANVAS - EDGE)
    y += rng.randint(34, 48)
    columns, framed = rng.choice((1, 1, 2)), rng.random() < 0.6
    span = (CANVAS - 2 * EDGE) // columns
    height = pen.height(value_font, value_size)
    step = max(height, pen.height(label_font, label_size)) + rng.randint(12, 26)
    make = _value_maker(rng, lexicon)
    middle = rng.randint(35, 50)
    while y < CANVAS - EDGE - step:
        for column in range(columns):
            x, limit = EDGE + column * span, EDGE + (column + 1) * span - 10
            box_x = x + span * middle // 100
            label = _written(pen, writer.label(), label_font, label_size, x, y, ink, box_x - 4)
            if framed:
                pen.frame(box_x, y - 3, limit, y + height + 4, pen.shade(ink), field_surface)
            else:
                pen.fill(box_x, y + height + 2, limit, y + height + 3, ink)
            value = writer.fresh(make, LONGEST_VALUE)
            written = _written(pen, value, value_font, value_size, box_x + 5, y, value_ink, limit - 2)
            writer.note(_pair(label, written))
        y += step


def register(pen: Pen) -> None:
    """A ruled list of labels and values under two headings, sometimes two such lists side by side."""
    rng, lexicon, writer = pen.rng, pen.lexicon, PairWriter(pen)
    surface = pen.paper(0.2)
    pen.fill(0, 0, CANVAS, CANVAS, surface)
    ink, rule = pen.ink(surface), pen.shade(pen.ink(surface), 40)
    font, size = pen.font(), pen.size(14, 20)
    step = pen.height(font, size) + rng.randint(5, 16)
    lists = rng.choice((1, 1, 2))
    left, right = rng.randint(6, EDGE + 30), CANVAS - rng.randint(6, EDGE + 30)
    top = y = rng.randint(EDGE, 50)
    span = (right - left) // lists
    middle, align_right = rng.randint(42, 58), rng.random() < 0.5
    ruled = rng.random() < 0.7
    make = _value_maker(rng, lexicon)
    pen.fill(left, y, right, y + step, pen.shade(surface, 30) if sum(surface) > 380 else surface)
    bottom = CANVAS - EDGE // 2 - (rng.randint(0, 150) if rng.random() < 0.4 else 0)
    first = True
    while y + step < bottom:
        if ruled:
            pen.fill(left, y, right, y + 1, rule)
        for number in range(lists):
            x, edge, end = left + number * span, left + number * span + span * middle // 100, left + (number + 1) * span
            label = _written(pen, writer.label(0.0), font, size, x + 5, y + 3, ink, edge - 4)
            text = writer.fresh(lexicon.word, LONGEST_LABEL) if first else writer.fresh(make, LONGEST_VALUE)
            begin = edge + 5
            if align_right and not first:
                begin = max(begin, end - 6 - pen.faces[font][size].width(text))
            value = _written(pen, text, font, size, begin, y + 3, ink, end - 4)
            if not first:
                writer.note(_pair(label, value))
        y += step
        first = False
    if ruled:
        pen.fill(left, y, right, y + 1, rule)
        for number in range(lists + 1):
            pen.fill(left + number * span, top, left + number * span + 1, y + 1, rule)


PAIRED_DESIGNS: dict[str, Callable[[Pen], None]] = {function.__name__: function for function in (bill, sheet, register)}
OPEN_DESIGNS = DESIGNS | PAIRED_DESIGNS
PAIRED_SHARE = 0.6


def compose_open(seed: int, role: Split, kind: str | None = None) -> Scene:
    """One scene to ask open questions about: of the given kind, or of a random one, mostly with labelled values."""
    rng = random.Random(f"open:{role}:{seed}")
    kind = kind or rng.choice(tuple(PAIRED_DESIGNS if rng.random() < PAIRED_SHARE else DESIGNS))
    return lay_out(kind, OPEN_DESIGNS[kind], role, rng)


def _value_maker(rng: random.Random, lexicon: Lexicon) -> Maker:
    """One kind of value for a whole page: mostly amounts that can be compared, else anything."""
    return rng.choice((lexicon.price, lexicon.number, lexicon.price, lexicon.number, lexicon.any))


def _written(
    pen: Pen, text: str, font: int, size: int, x: int, top: int, colour: Colour, limit: int
) -> DrawnWord | None:
    """The word as it was drawn, or None where it does not fit."""
    return pen.scene.words[-1] if pen.write(text, font, size, x, top, colour, limit) >= 0 else None


def _pair(label: DrawnWord | None, value: DrawnWord | None) -> LabelledValue | None:
    return LabelledValue(label, value) if label is not None and value is not None else None
