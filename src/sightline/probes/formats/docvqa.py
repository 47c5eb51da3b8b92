"""DocVQA, single pages: questions about scanned documents.

``val_v1.0.json`` (or ``val_v1.0_withQT.json``) is an object whose ``data`` has ``questionId``, ``question``,
``answers`` and ``image``, the name of a file below the folder that holds ``documents``; as its site ships it, the
files lie in ``spdocvqa_qas`` and the images in ``spdocvqa_images`` beside it. Parquet of lmms-lab/DocVQA,
configuration DocVQA, and the 500 questions ``docvqa_val`` of lmms-lab/LMMs-Eval-Lite have the image itself there; its
name is then made of ``ucsf_document_id`` and ``ucsf_document_page_no``, as it is in the authors' files.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from sightline.probes.data_rows import DataRow
from sightline.probes.formats.base import FORMATS
from sightline.probes.formats.question_files import AskedRow, QuestionFiles, first_of, has_columns, text_of, texts_of

_START = re.compile(r'\s*\{[^\[]*"dataset_name"\s*:\s*"docvqa"|[^}]*"ucsf_document_id"\s*:')


@FORMATS.register("docvqa")
@dataclass(frozen=True)
class DocVqa(QuestionFiles):
    """``extra`` keeps the types of a question, where the file has them: form, table/list, layout, ..."""

    name: ClassVar[str] = "docvqa"
    description: ClassVar[str] = "DocVQA: the authors' JSON with images beside, or parquet with images inside"
    task: ClassVar[str] = "docvqa"
    image_folder: ClassVar[str] = "spdocvqa_images"
    columns: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("questionId", "question_id"), ("question",), ("image",), ("answers",),
    )  # fmt: skip

    @classmethod
    def recognises(cls, start: str) -> bool:
        return _START.match(start) is not None or has_columns(start, "questionId", "question", "answers", "image")

    def asked(self, row: DataRow) -> AskedRow:
        cells = row.cells
        question_id = text_of(first_of(cells, "questionId", "question_id"))
        document, page = text_of(cells.get("ucsf_document_id")), text_of(cells.get("ucsf_document_page_no"))
        image_id = f"{document}_{page}" if document and page else question_id
        types = texts_of(cells.get("question_types"))
        extra: dict[str, Any] = {"question_types": list(types)} if types else {}
        stated = cells.get("image")
        return AskedRow(
            question_id=question_id,
            question=text_of(cells.get("question")),
            answers=texts_of(cells.get("answers")),
            image=stated.strip() if isinstance(stated, str) else f"documents/{image_id}.png",
            image_id=image_id,
            extra=extra,
        )
