"""What becomes of a field of a document in an answer: right, swapped, a digit wrong, invented, or nothing said.

Exact match hides what breaks in production: by it 6000.00 and 60000.0 are the same text, and an amount of another line
is no worse than a stain. Here values are compared as what they are, and a wrong one is looked for on the page.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

from sightline.core.probe import Box
from sightline.core.text import edit_distance

DOCUMENTS = "documents"
"""The task of questions about fields of documents."""
AMOUNTS = ("amount", "total")
"""Kinds of field whose value is a sum of money: the number counts, not how it is written."""
DATE = "date"
SURE = 0.9
"""Geometric mean probability per generated token from which on a model speaks without doubt."""

_EDGE = re.compile(r"^[^\w]+|[^\w%]+$")
_CURRENCY = re.compile(
    r"^(?:[a-z]{1,3}\$?(?=\s|[-+(]?\d[\d,']*\.\d)|[$€£¥₹])\s*(?=[-+(]?[.\d])|(?<=\d)\s*(?:[a-z]{3}|[$€£¥₹])$"
)
_DATE_MARKS = re.compile(r"[\s./,-]+")
_SILENT = re.compile(
    r"(?:n/?a|none|unknown|(?:it is |i am |i'm )?(?:not|un)\W?(?:visible|readable|legible|clear|available|able|sure)"
    r"|(?:i )?can\W?(?:no|')t (?:read|see|tell|answer|determine)|no (?:such )?(?:text|answer|value))\b.*"
)
_DIGITS = re.compile(r"\D")
_LETTERS = re.compile(r"[\W\d_]")


def plain(text: str) -> str:
    """Compatibility forms, case and repeated blanks folded, marks at both ends stripped; what stands inside stays."""
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return _EDGE.sub("", folded) or folded


def number(text: str) -> Decimal | None:
    """The amount that a text is, whatever its currency sign and thousands separators; None where it is none.

    The last mark decides: with one or two digits behind it, it is the decimal mark; with three it separates thousands.
    """
    bare = _CURRENCY.sub("", " ".join(unicodedata.normalize("NFKC", text).casefold().split()))
    sign = "-" if bare.startswith(("-", "(")) or bare.endswith("-") else ""
    digits = bare.strip("()+-").replace(" ", "")
    if not re.fullmatch(r"\d[\d.,']*\d|\d|[.,]\d+", digits):
        return None
    whole, mark, fraction = digits.rpartition(max(".", ",", key=digits.rfind))
    if mark and (len(fraction) != 3 or whole in ("", "0")):
        digits = f"{re.sub(r'[.,]', '', whole)}.{fraction}"
    else:
        digits = re.sub(r"[.,]", "", digits)
    try:
        return Decimal(sign + digits.replace("'", ""))
    except InvalidOperation:
        return None


def same_value(answer: str, accepted: str, kind: str = "") -> bool:
    """Whether an answer gives the value of a field: an amount by its number, a date whatever separates its parts."""
    if plain(answer) == plain(accepted):
        return True
    if kind in AMOUNTS:
        said = number(answer)
        return said is not None and said == number(accepted)
    return kind == DATE and _DATE_MARKS.sub(" ", plain(answer)) == _DATE_MARKS.sub(" ", plain(accepted))


def is_silent(answer: str) -> bool:
    """Whether nothing was answered, or that nothing can be."""
    said = plain(answer)
    return not re.search(r"\w", said) or _SILENT.fullmatch(said) is not None


@dataclass(frozen=True)
class PlacedText:
    """One text of a page and where it stands."""

    text: str
    box: Box


def page_texts(records: Sequence[Sequence[object]] | None) -> list[PlacedText] | None:
    """The texts that a probe carries as ``[[text, x1, y1, x2, y2], ...]``; None where it carries none."""
    if not records:
        return None
    return [
        PlacedText(str(text), (float(x1), float(y1), float(x2), float(y2)))  # type: ignore[arg-type]
        for text, x1, y1, x2, y2 in records
    ]


def find_elsewhere(answer: str, kind: str, page: Sequence[PlacedText], regions: Sequence[Box]) -> PlacedText | None:
    """The text of the page that the answer is, or stands alone in, outside the regions of the right one."""
    said = plain(answer)
    alone = re.compile(rf"(?<![\w.,]){re.escape(said)}(?![\w]|[.,]\d)")
    found = [
        each
        for each in page
        if not any(_overlaps(each.box, region) for region in regions)
        and (same_value(each.text, answer, kind) or alone.search(plain(each.text)))
    ]
    return min(found, key=lambda each: len(each.text), default=None)


def _overlaps(one: Box, other: Box) -> bool:
    """Whether half of the smaller box lies in the other."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    smaller = min((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other))
    return width > 0 and height > 0 and width * height >= 0.5 * smaller


def count_edits(accepted: str, answer: str) -> tuple[int, int, int]:
    """(changed, lost, added) characters on a shortest way from the accepted text to the answer; changes first.

    ``ways[j]`` holds the fewest edits of the accepted characters so far into the first j of the answer:
    min(ways[i-1, j-1] + [a_i != b_j], ways[i-1, j] + 1, ways[i, j-1] + 1), with what they were.
    """
    ways = [(j, 0, 0, j) for j in range(len(answer) + 1)]
    for character in accepted:
        above, ways[0] = ways[0], (ways[0][0] + 1, ways[0][1], ways[0][2] + 1, ways[0][3])
        for j, said in enumerate(answer, 1):
            change = int(character != said)
            options = (
                (above[0] + change, above[1] + change, above[2], above[3]),
                (ways[j][0] + 1, ways[j][1], ways[j][2] + 1, ways[j][3]),
                (ways[j - 1][0] + 1, ways[j - 1][1], ways[j - 1][2], ways[j - 1][3] + 1),
            )
            above, ways[j] = ways[j], min(options, key=lambda way: way[0])
    return ways[-1][1:]


@dataclass(frozen=True)
class FieldOutcome:
    """One answer about one field. The five words of ``outcome`` exclude each other."""

    outcome: str
    """``right``, ``swapped``, ``digit_error``, ``invented``, ``silent``; ``wrong`` where the page is not known."""
    swapped: bool | None
    swapped_text: str | None
    swapped_box: list[float] | None
    digit_error: bool | None
    digits_changed: int | None
    digits_lost: int | None
    digits_added: int | None
    invented: bool | None
    silent: bool
    character_errors: float
    """Edit distance to the nearest accepted answer over its length, both ``plain``."""
    confidently_wrong: bool | None


def judge_field(
    answer: str,
    accepted: Sequence[str],
    *,
    right: bool,
    loss: float | None,
    kind: str = "",
    page: Sequence[PlacedText] | None = None,
    regions: Sequence[Box] = (),
) -> FieldOutcome:
    """What became of a field. ``loss``: mean negative log-likelihood per token; ``regions``: where the right value is.

    A digit error is an answer that stands nowhere on the page, has the accepted answer's letters and other digits, of
    which at least half are right. What stands nowhere and is none is invented.
    """
    said = plain(answer)
    nearest = min(accepted, key=lambda each: edit_distance(plain(each), said))
    silent = is_silent(answer) and not right
    wrong = not right and not silent
    elsewhere = find_elsewhere(answer, kind, page, regions) if wrong and page else None
    wanted, given = _DIGITS.sub("", nearest), _DIGITS.sub("", said)
    edits = count_edits(wanted, given) if wanted and not silent else None
    of_digits = (
        wrong
        and elsewhere is None
        and edits is not None
        and sum(edits) <= len(wanted) / 2
        and (sum(edits) > 0 or kind in AMOUNTS)  # of an amount the decimal mark alone may be wrong
        and (kind in AMOUNTS or _LETTERS.sub("", plain(nearest)) == _LETTERS.sub("", said))
    )
    known = page is not None
    if right:
        outcome = "right"
    elif silent:
        outcome = "silent"
    elif elsewhere is not None:
        outcome = "swapped"
    elif of_digits:
        outcome = "digit_error"
    else:
        outcome = "invented" if known else "wrong"
    changed, lost, added = edits or (None, None, None)
    return FieldOutcome(
        outcome,
        swapped=outcome == "swapped" if known else None,
        swapped_text=elsewhere.text if elsewhere else None,
        swapped_box=list(elsewhere.box) if elsewhere else None,
        digit_error=outcome == "digit_error" if wanted else None,
        digits_changed=changed,
        digits_lost=lost,
        digits_added=added,
        invented=outcome == "invented" if known else None,
        silent=silent,
        character_errors=edit_distance(plain(nearest), said) / max(1, len(plain(nearest))),
        confidently_wrong=None if loss is None else wrong and math.exp(-loss) >= SURE,
    )
