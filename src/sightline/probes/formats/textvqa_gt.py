"""Boxes of TextVQA's answers: jrzhang/TextVQA_GT_bbox, one box for a question of the validation part.

Columns ``dataset_id`` (the question's id), ``question``, ``answer`` (a list), ``bbox`` (x, y, width, height in pixels
of the image) and ``image`` as ``{bytes, path}``. Above all it is evidence for TextVQA's own questions, which have the
same ids (``sightline probes evidence --questions``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from sightline.errors import SightlineError
from sightline.probes.box_format import BoxFormat, four_numbers
from sightline.probes.data_rows import DataRow
from sightline.probes.formats.base import FORMATS
from sightline.probes.formats.question_files import AskedRow, QuestionFiles, first_of, has_columns, text_of, texts_of
from sightline.probes.roles import ANSWER

_START = re.compile(r'[^}]*"dataset_id"\s*:[^}]*"bbox"\s*:|[^}]*"bbox"\s*:[^}]*"dataset_id"\s*:')
_XYWH = BoxFormat("xywh", "pixels")


@FORMATS.register("textvqa_gt")
@dataclass(frozen=True)
class TextVqaGroundTruth(QuestionFiles):
    """Every question has one region, the answer's."""

    name: ClassVar[str] = "textvqa_gt"
    description: ClassVar[str] = "TextVQA_GT_bbox: a box for the answer of each question, for probes evidence"
    task: ClassVar[str] = "textvqa"
    columns: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("dataset_id", "question_id"), ("question",), ("answer", "answers"), ("bbox",), ("image",),
    )  # fmt: skip

    @classmethod
    def recognises(cls, start: str) -> bool:
        return _START.match(start) is not None or has_columns(start, "dataset_id", "bbox", "image")

    @property
    def box_format(self) -> BoxFormat:
        return _XYWH

    def asked(self, row: DataRow) -> AskedRow:
        cells = row.cells
        question_id = text_of(first_of(cells, "dataset_id", "question_id"))
        box = four_numbers(cells.get("bbox"))
        if box is None:
            raise SightlineError(f"bbox {cells.get('bbox')!r} is not x, y, width, height")
        stated = cells.get("image")
        return AskedRow(
            question_id=question_id,
            question=text_of(cells.get("question")),
            answers=texts_of(first_of(cells, "answer", "answers")),
            image=stated.strip() if isinstance(stated, str) else f"{question_id}.jpg",
            image_id="",
            boxes=(box,),
            roles=(ANSWER,),
        )
