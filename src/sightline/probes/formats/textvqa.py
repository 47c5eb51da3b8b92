"""TextVQA: questions about text in photographs, ten people's answers each.

``TextVQA_0.5.1_val.json`` is an object whose ``data`` has ``question_id``, ``question``, ``image_id``, ``answers``; its
images are ``train_images/{image_id}.jpg``. The parquet files of lmms-lab/textvqa, and the 500 questions
``textvqa_val`` of lmms-lab/LMMs-Eval-Lite, have the same columns and the ``image`` besides, as ``{bytes, path}``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from sightline.probes.data_rows import DataRow
from sightline.probes.formats.base import FORMATS
from sightline.probes.formats.question_files import AskedRow, QuestionFiles, has_columns, text_of, texts_of

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
