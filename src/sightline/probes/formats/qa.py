"""Questions of your own: JSON lines, a JSON list, or a table, with an image, a question and its accepted answers.

{"image": "r1.jpg", "question": "What is the total?", "answers": ["12.50", "$12.50"]}
{"image": "r1.jpg", "question": "By whom?", "answers": ["Mill"], "boxes": [[0.1, 0.1, 0.3, 0.2]], "roles": ["context"]}

Further keys: ``id`` (unique; the row's number otherwise), ``decoy``, ``task`` (decides how answers are scored),
``kind``, ``image_id``. In a table, lists are written as JSON.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from sightline.errors import SightlineError
from sightline.probes.data_rows import DataRow, table_delimiter
from sightline.probes.formats.base import FORMATS, FormatOption
from sightline.probes.formats.question_files import AskedRow, QuestionFiles, has_columns
from sightline.probes.regions import BoxFormat, Order, Units

_START = re.compile(
    r'\s*(?:\[\s*)?\{(?=[^\n]*"image"\s*:)(?=[^\n]*"question"\s*:)(?=[^\n]*"answers?"\s*:)(?![^\n]*"(?:words|ocr_tokens|probe)"\s*:)'
)
"""Not a record with words, nor a probe of the paper's artifact, which have a question and an answer too."""


@FORMATS.register("qa")
@dataclass(frozen=True)
class Qa(QuestionFiles):
    """Boxes are audit regions: coverage is measured against them, no selector sees them."""

    name: ClassVar[str] = "qa"
    description: ClassVar[str] = "your own questions: JSON lines or a table of image, question, answers; perhaps boxes"
    yields: ClassVar[bool] = True
    task: ClassVar[str] = "qa"
    begins: ClassVar[re.Pattern[str]] = _START
    parts: ClassVar[Mapping[str, str]] = {"image": "image", "question": "question", "answers": "answers answer"}
    further: ClassVar[Mapping[str, str]] = {
        "question_id": "id question_id", "image_id": "image_id", "kind": "kind", "task": "task",
        "boxes": "boxes regions", "roles": "roles", "decoy": "decoy",
    }  # fmt: skip
    image_ids: ClassVar[tuple[str, ...]] = ("{image_id}",)
    image_name: ClassVar[str] = "qa_{question_id}.png"

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
        known = {name for names in (*self.parts.values(), *self.further.values()) for name in names.split()}
        unknown = sorted(set(row.cells) - known)
        if unknown:
            raise SightlineError(f"unknown column {unknown[0]!r}; known: {', '.join(sorted(known))}")
        return super().asked(row)
