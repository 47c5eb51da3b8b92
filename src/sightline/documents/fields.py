"""Fields of a page: a label, its value, and how the one stands to the other.

A value is right of its label, in the same text or the next one of its row; or below it; or where a row and a column of
a table cross. Whatever could be meant otherwise is no field: a label that stands twice, something unread in between,
two values that could both be it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from sightline.core.probe import Box
from sightline.documents.reading import PageLine, PageReading, folded, part, rows_of, share_along, standing, words_in
from sightline.documents.settings import LABEL_MARKS, READING, TEXT, VALUES, kind_of_value, known_label
from sightline.probes.regions import hull

RIGHT, BELOW, IN_ROW = "right_of", "below", "in_row"
LONGEST_LABEL = 32
"""Characters of a text that may be a label because a colon follows it."""
ROOM_BELOW = 1.2
"""How far below its label a value begins at most, in heights of the label."""
_GENERIC = re.compile(rf"(?P<label>[^\W\d_][^:：]{{1,{LONGEST_LABEL - 1}}}?)\s*[:：]\s*")
_CURRENCY = re.compile(r"(?:rm|myr|usd|us\$|eur|gbp|chf|sgd|[$€£¥:=])", re.IGNORECASE)


@dataclass(frozen=True)
class DocumentField:
    """What a page says under a label."""

    kind: str
    label: str
    """As it stands on the page, without marks around it."""
    label_box: Box
    value: str
    value_box: Box
    relation: str
    called: str = ""
    """What an invoice reader calls it, where the label is a known one."""
    whole: str = ""
    """All that stands there, where the value is a part of it: with a currency, or a time behind a date."""
    row: str = ""
    """The head of the row that a table's cell stands in."""
    row_box: Box | None = None
    elsewhere: int = 0
    """How often the value stands elsewhere on the page."""


@dataclass(frozen=True)
class FoundFields:
    fields: tuple[DocumentField, ...]
    refused: Counter[str]
    """Why labels with a value became no field."""


def find_fields(page: PageReading) -> FoundFields:
    """The fields of a page from top to bottom, and why others are none."""
    layout = Layout(page)
    refused: Counter[str] = Counter()
    found = [*_labelled(layout, refused), *_cells(layout, refused), *_items(layout)]
    kept: list[DocumentField] = []
    values = Counter((folded(field.label), folded(field.row)) for field in found)
    for field in found:
        if any(field.value_box == other.value_box for other in kept):
            continue  # a cell that is the only one below its head
        names = [field.label, *([field.row] if field.row else [])]
        if values[folded(field.label), folded(field.row)] > 1 or any(layout.count_label(name) > 1 for name in names):
            refused["label stands twice"] += 1
        elif not layout.is_asked(field):
            refused["not read surely enough to be asked for"] += 1
        else:
            kept.append(replace(field, elsewhere=layout.count(field.value) - 1))
    return FoundFields(tuple(kept), refused)


class Layout:
    """Which texts of a page stand beside, above and below each other, and how often a text stands there."""

    def __init__(self, page: PageReading) -> None:
        self.page = page
        self.lines = tuple(piece for line in page.lines for piece in _pieces(line))
        self.all = (*self.lines, *page.dropped)

    def count_label(self, text: str) -> int:
        """How often a label stands there: as a text, or before a colon or a number; not as a word among others."""
        pattern = re.compile(rf"(?<![^\W\d_]){re.escape(folded(text))}(?![^\W\d_])")
        return sum(len(pattern.findall(folded(line.text))) for line in self.all)

    def count(self, text: str) -> int:
        """How often a text stands on the page, in any reading, within lines too."""
        pattern = standing(text)
        return sum(len(pattern.findall(line.text)) for line in self.all)

    def is_asked(self, field: DocumentField) -> bool:
        """Whether what a field is made of was read surely enough for a question; a known label is as it is known."""
        parts = [(field.value, field.value_box)]
        parts += [] if field.called else [(field.label, field.label_box)]
        parts += [(field.row, field.row_box)] if field.row_box else []
        return all(self._is_sure(text, box, field.kind) for text, box in parts)

    def _is_sure(self, text: str, box: Box, kind: str) -> bool:
        """Whether both engines read a part of a line, or the first is expected to misread few signs of it."""
        line = next(line for line in self.page.lines if _within(box, line.box))
        if line.agreed or _holds(words_in(line.box, self.page.second), text):
            return True
        if kind == TEXT:
            return (1.0 - line.confidence) * len(text) <= READING["misread_alone"]
        return (1.0 - line.confidence) * len(line.text) <= READING["misread"]

    def right_of(self, line: PageLine) -> list[PageLine]:
        """Texts of the same row to the right, nearest first, unread ones included."""
        row = (other for other in self.all if other is not line and share_along(line.box, other.box, 1) > 0.5)
        behind = (other for other in row if (other.box[0] + other.box[2]) / 2 > line.box[2])
        return sorted(behind, key=lambda other: other.box[0])

    def below(self, line: PageLine) -> list[PageLine]:
        """Texts under it that share some of its width, nearest first, unread ones included."""
        column = (other for other in self.all if other is not line and share_along(line.box, other.box, 0) > 0.5)
        return sorted((each for each in column if each.box[1] >= _middle_y(line.box)), key=lambda other: other.box[1])


def _holds(words: Sequence[PageLine], text: str) -> bool:
    """Whether the words of the second engine hold the text, and not as a part of a longer number or word."""
    return standing(text).search(" ".join(word.text for word in words)) is not None


# A label and its value.

_ANOTHER = re.compile(r"(?<=[\w)])\s+(?=[^\W\d_][^\W\d_ .#/]*(?: [^\W\d_.#/]+)?\s?\.?[:：])")
"""Where a second label begins in a line that two fields stand in: "INV No.: 1212276 Cashier: Nicole"."""


def _pieces(line: PageLine) -> list[PageLine]:
    """A line, or its parts where it holds several labels with a colon, each with something behind it."""
    pieces, start = [], 0
    for gap in _ANOTHER.finditer(line.text):
        if re.search(r"[:：]\s*\S", line.text[start : gap.start()]):
            pieces.append(part(line, start, gap.start()))
            start = gap.end()
    return [*pieces, part(line, start, len(line.text))] if pieces else [line]


def _labelled(layout: Layout, refused: Counter[str]) -> Iterator[DocumentField]:
    for line in layout.lines:
        if (inside := _inside(line)) is not None:
            yield inside
            continue
        bare = line.text.strip(LABEL_MARKS)
        known = known_label(line.text)
        if known is None and not (line.text.rstrip().endswith((":", "：")) and len(bare) <= LONGEST_LABEL):
            continue
        if not _is_label(bare):
            continue
        relation = RIGHT
        value = _beside(layout, line, known.kind if known else None, refused)
        if value is None and known is not None:
            value, relation = _under(layout, line, known.kind), BELOW
        if value is not None:
            kind, text, whole = value
            kind = _seen(kind, text.text)
            called = known.called if known else ""
            yield DocumentField(kind, bare, _box_of(line, bare), text.text, text.box, relation, called, whole.text)


def _inside(line: PageLine) -> DocumentField | None:
    """A label and its value in one text: "Date: 26-06-2018 17:08", "INVOICE NO 1212276"."""
    starts = [match.start() for match in re.finditer(r"(?<=[\s:：])\S", line.text)]
    for start in reversed(starts):
        label = line.text[:start].strip(LABEL_MARKS)
        known = known_label(label) if label else None
        if known is None or (known.kind == "name" and line.text[:start].rstrip()[-1] not in ":："):
            continue  # a name needs a colon before it: "to view our offers"
        value = _value(part(line, start, len(line.text)), known.kind)
        if value is not None:
            return _of_parts(line, label, _seen(known.kind, value[0].text), known.called, *value)
    if (generic := _GENERIC.match(line.text)) and generic.end() < len(line.text):
        rest = part(line, generic.end(), len(line.text))
        kind = kind_of_value(rest.text)
        value = _value(rest, kind) if kind != TEXT else None
        if value is not None and known_label(rest.text) is None:
            return _of_parts(line, generic["label"].strip(LABEL_MARKS), kind, "", *value)
    return None


def _is_label(text: str) -> bool:
    """Words; a digit that touches a letter is a misread one: "INV0ICE", "GST 1D"."""
    return any(sign.isalpha() for sign in text) and not re.search(r"[^\W\d_]\d|\d[^\W\d_]", text)


def _seen(kind: str, value: str) -> str:
    """The kind of a value: a date is one under any label."""
    return "date" if kind_of_value(value) == "date" else kind


def _box_of(line: PageLine, label: str) -> Box:
    start = line.text.index(label)
    return part(line, start, start + len(label)).box


def _of_parts(
    line: PageLine, label: str, kind: str, called: str, value: PageLine, whole: PageLine
) -> DocumentField | None:
    if not _is_label(label):
        return None
    return DocumentField(kind, label, _box_of(line, label), value.text, value.box, RIGHT, called, whole.text)


def _value(text: PageLine, kind: str) -> tuple[PageLine, PageLine] | None:
    """The value of that kind that a text begins with, and the text without marks; None where it is none.

    Behind it nothing may follow but a blank and something of another kind: a time behind a date, a tax code.
    """
    start = len(text.text) - len(text.text.lstrip(LABEL_MARKS.replace("-", "").replace(".", "").replace("#", "")))
    pattern = VALUES["amount" if kind == "total" else kind]
    found = pattern.match(text.text, start)
    if found is None or not found[0].strip():
        return None
    rest = text.text[found.end() :]
    if rest.strip(LABEL_MARKS) and (kind in ("name", "identifier") or not rest.startswith(" ") or len(rest) > 14):
        return None
    group = "value" if "value" in pattern.groupindex and found["value"] else 0
    value = part(text, *found.span(group))
    stripped = value.text.strip()
    value = part(value, value.text.index(stripped), value.text.index(stripped) + len(stripped))
    end = len(text.text.rstrip(" :=*"))
    return value, part(text, start, max(end, found.end(group)))


def _beside(
    layout: Layout, line: PageLine, kind: str | None, refused: Counter[str]
) -> tuple[str, PageLine, PageLine] | None:
    """The value in the next text of the row; a currency or a colon that stands alone in between is passed over."""
    row = layout.right_of(line)
    while row and _CURRENCY.fullmatch(row[0].text.strip()):
        row = row[1:]
    if not row:
        return None
    nearest = row[0]
    if nearest.reason:
        refused["something unread beside the label"] += 1
        return None
    if any(share_along(nearest.box, other.box, 0) > 0.3 for other in row[1:]):
        refused["two values beside the label"] += 1
        return None
    if known_label(nearest.text) is not None or nearest.text.rstrip().endswith(":"):
        return None
    found = kind or kind_of_value(nearest.text.strip(LABEL_MARKS))
    value = _value(nearest, found) if found != TEXT else None
    return None if value is None else (found, *value)


def _under(layout: Layout, line: PageLine, kind: str) -> tuple[str, PageLine, PageLine] | None:
    """The value right below, if it is the only one of its kind in that column: else it is a table's."""
    if layout.right_of(line) and _value(layout.right_of(line)[0], kind):
        return None
    column = layout.below(line)
    if not column or column[0].reason or column[0].box[1] - line.box[3] > ROOM_BELOW * _height(line.box):
        return None
    if known_label(column[0].text) is not None or (kind == "name" and layout.right_of(column[0])):
        return None
    value = _value(column[0], kind)
    if value is None or (len(column) > 1 and kind not in (TEXT, "name") and _value(column[1], kind)):
        return None
    return kind, *value


def _items(layout: Layout) -> Iterator[DocumentField]:
    """Rows of two texts, words and an amount: what an item costs, whatever it is called."""
    for row in rows_of(layout.all):
        if len(row) != 2 or any(line.reason for line in row):
            continue
        bare, value = row[0].text.strip(LABEL_MARKS), _value(row[1], "amount")
        words = sum(sign.isalpha() for sign in bare)
        if value is None or words < 3 or len(bare) > LONGEST_LABEL or not _is_label(bare) or known_label(bare):
            continue
        box = _box_of(row[0], bare)
        yield DocumentField("amount", bare, box, value[0].text, value[0].box, RIGHT, whole=value[1].text)


# Tables: a row of heads, and rows below it whose texts stand under them.


def _cells(layout: Layout, refused: Counter[str]) -> Iterator[DocumentField]:
    rows = rows_of(layout.all)
    for place, heads in enumerate(rows):
        if not _is_head(heads):
            continue
        above = heads
        for row in rows[place + 1 :]:
            if _is_head(row) or _middle_y(row[0].box) - _middle_y(above[0].box) > 4 * _height(above[0].box):
                break
            above = row
            yield from _cells_of(row, heads, refused)


def _is_head(row: Sequence[PageLine]) -> bool:
    texts = [line.text.strip(LABEL_MARKS) for line in row]
    return len(row) > 2 and all(
        not line.reason and len(text) > 1 and not any(sign.isdigit() for sign in text)
        for line, text in zip(row, texts, strict=True)
    )


def _cells_of(row: Sequence[PageLine], heads: Sequence[PageLine], refused: Counter[str]) -> Iterator[DocumentField]:
    """The cells of a row that has a head of words and whose other texts each stand under one head alone."""
    first, *others = row
    text = first.text.strip(LABEL_MARKS)
    if not others or first.reason or sum(sign.isalpha() for sign in text) < 3 or known_label(text) is not None:
        return
    if _under_head(first, heads) != [heads[0]]:
        return
    columns = [_under_head(cell, heads) for cell in others]
    for cell, under in zip(others, columns, strict=True):
        value = cell.text.strip(LABEL_MARKS)
        if cell.reason or not any(sign.isdigit() for sign in value) or len(value) > 16:
            continue
        if len(under) != 1 or under[0] is heads[0] or sum(other == under for other in columns) > 1:
            refused["table columns do not align"] += 1
            continue
        head = under[0].text.strip(LABEL_MARKS)
        yield DocumentField("table_cell", head, under[0].box, value, cell.box, IN_ROW, row=text, row_box=first.box)


def _under_head(cell: PageLine, heads: Sequence[PageLine]) -> list[PageLine]:
    return [head for head in heads if share_along(cell.box, head.box, 0) > 0.25]


# How boxes stand to each other.


def _middle_y(box: Box) -> float:
    return (box[1] + box[3]) / 2


def _height(box: Box) -> float:
    return box[3] - box[1]


def _within(box: Box, line: Box) -> bool:
    return all(abs(one - other) < 1e-9 for one, other in zip(hull((box, line)), line, strict=True))
