"""TextVQA: questions about text in photographs, ten people's answers each.

``TextVQA_0.5.1_val.json`` is an object whose ``data`` has ``question_id``, ``question``, ``image_id``, ``answers``; its
images are ``train_images/{image_id}.jpg``. The parquet files of lmms-lab/textvqa, and the 500 questions
``textvqa_val`` of lmms-lab/LMMs-Eval-Lite, have the same columns and the ``image`` besides, as ``{bytes, path}``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from sightline.errors import SightlineError
from sightline.probes.data_rows import DataRow
from sightline.probes.formats.base import FORMATS
from sightline.probes.formats.question_files import AskedRow, QuestionFiles, first_of, has_columns, text_of, texts_of
from sightline.probes.regions import ANSWER, BoxFormat, four_numbers

_START = re.compile(r'\s*\{[^\[]*"dataset_name"\s*:\s*"textvqa"|[^}]*"flickr_(?:original|300k)_url"\s*:')


@FORMATS.register("textvqa")
@dataclass(frozen=True)
class TextVqa(QuestionFiles):
    """All ten answers are kept, repetitions too: how many people gave one is its score."""

    name: ClassVar[str] = "textvqa"
    description: ClassVar[str] = "TextVQA: the authors' JSON with images beside, or parquet with images inside"
    task: ClassVar[str] = "textvqa"
    columns: ClassVar[tuple[tuple[str, ...], ...]] = (("question_id",), ("question",), ("image_id",), ("answers",))

    @classmethod
    def recognises(cls, start: str) -> bool:
        return _START.match(start) is not None or has_columns(start, "question_id", "image_id", "answers", "image")

    def asked(self, row: DataRow) -> AskedRow:
        image_id = text_of(row.cells.get("image_id"))
        return AskedRow(
            question_id=text_of(row.cells.get("question_id")),
            question=text_of(row.cells.get("question")),
            answers=texts_of(row.cells.get("answers")),
            image=f"train_images/{image_id}.jpg" if image_id else "",
            image_id=image_id,
        )


# Boxes of TextVQA's answers: jrzhang/TextVQA_GT_bbox, one box for a question of the validation part.
#
# Columns ``dataset_id`` (the question's id), ``question``, ``answer`` (a list), ``bbox`` (x, y, width, height in
# pixels of the image) and ``image`` as ``{bytes, path}``. Above all it is evidence for TextVQA's own questions, which
# have the same ids (``sightline probes evidence --questions``).

_TEXTVQA_GT_START = re.compile(r'[^}]*"dataset_id"\s*:[^}]*"bbox"\s*:|[^}]*"bbox"\s*:[^}]*"dataset_id"\s*:')
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
        return _TEXTVQA_GT_START.match(start) is not None or has_columns(start, "dataset_id", "bbox", "image")

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
