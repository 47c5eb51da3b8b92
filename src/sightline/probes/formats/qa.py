"""Questions of your own: JSON lines, or a table, with an image, a question and its accepted answers.

{"image": "r1.jpg", "question": "What is the total?", "answers": ["12.50", "$12.50"]}
{"image": "r1.jpg", "question": "By whom?", "answers": ["Mill"], "boxes": [[0.1, 0.1, 0.3, 0.2]], "roles": ["context"]}

Further keys: ``id`` (unique; the row's number otherwise), ``decoy``, ``task`` (decides how answers are scored),
``kind``, ``image_id``. In a table, lists are written as JSON.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from sightline.core.probe import Box
from sightline.errors import SightlineError
from sightline.probes.data_rows import DataRow, table_delimiter
from sightline.probes.formats.base import FORMATS, FormatOption
from sightline.probes.formats.question_files import AskedRow, QuestionFiles, first_of, has_columns, text_of, texts_of
from sightline.probes.regions import BoxFormat, Order, Units, check_roles, four_numbers

_START = re.compile(
    r'\s*\{(?=[^\n]*"image"\s*:)(?=[^\n]*"question"\s*:)(?=[^\n]*"answers?"\s*:)(?![^\n]*"(?:words|ocr_tokens|probe)"\s*:)'
)
"""Not a record with words, nor a probe of the paper's artifact, which have a question and an answer too."""
_KNOWN = {
    "id", "question_id", "image", "image_id", "question", "answer", "answers", "boxes", "regions", "roles", "decoy",
    "task", "kind",
}  # fmt: skip


@FORMATS.register("qa")
@dataclass(frozen=True)
class Qa(QuestionFiles):
    """Boxes are audit regions: coverage is measured against them, no selector sees them."""

    name: ClassVar[str] = "qa"
    description: ClassVar[str] = "your own questions: JSON lines or a table of image, question, answers; perhaps boxes"
    yields: ClassVar[bool] = True
    task: ClassVar[str] = "qa"
    columns: ClassVar[tuple[tuple[str, ...], ...]] = (("image",), ("question",), ("answers", "answer"))

    order: Annotated[Order, FormatOption("Order of the four numbers of a box.", "--boxes")] = "xyxy"
    units: Annotated[Units, FormatOption("Unit of boxes.", "--units")] = "normalised"

    @classmethod
    def recognises(cls, start: str) -> bool:
        names = [("image", "question", "answers"), ("image", "question", "answer")]
        table = any(table_delimiter(start, *columns) is not None for columns in names)
        return _START.match(start) is not None or table or any(has_columns(start, *columns) for columns in names)

    @property
    def box_format(self) -> BoxFormat:
        return BoxFormat(self.order, self.units)

    def asked(self, row: DataRow) -> AskedRow:
        cells = row.cells
        unknown = sorted(set(cells) - _KNOWN)
        if unknown:
            raise SightlineError(f"unknown column {unknown[0]!r}; known: {', '.join(sorted(_KNOWN))}")
        stated = cells.get("image")
        number = text_of(first_of(cells, "id", "question_id")) or str(row.number)
        return AskedRow(
            question_id=number,
            question=text_of(cells.get("question")),
            answers=texts_of(first_of(cells, "answers", "answer")),
            image=stated.strip() if isinstance(stated, str) else f"qa_{number}.png",
            image_id=text_of(cells.get("image_id")),
            kind=text_of(cells.get("kind")),
            task=text_of(cells.get("task")),
            boxes=_boxes(first_of(cells, "boxes", "regions")),
            roles=check_roles(texts_of(cells.get("roles"))),
            decoy=text_of(cells.get("decoy")),
        )


def _boxes(value: Any) -> tuple[Box, ...]:
    if isinstance(value, str):
        try:
            value = json.loads(value) if value.strip() else None
        except (ValueError, RecursionError):
            raise SightlineError(f"boxes {value!r} are not a JSON list") from None
    if value is None:
        return ()
    if not isinstance(value, list):
        raise SightlineError(f"boxes {value!r} are not a list")
    found = []
    for each in value:
        box = four_numbers(each)
        if box is None or len(each) != 4:
            raise SightlineError(f"box {each!r} is not four finite numbers")
        found.append(box)
    return tuple(found)
