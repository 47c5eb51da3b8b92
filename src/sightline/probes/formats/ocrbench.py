"""OCRBench: a thousand questions of ten types, from reading a word to mathematics written by hand.

The authors' ``OCRBench.json`` is a list of ``{dataset_name, type, question, answers, image_path}``, its images lie in
``OCRBench_Images``. Parquet of echo840/OCRBench has ``dataset``, ``question_type``, ``question``, ``answer``, and
``image`` as ``{bytes, path}``. Neither has an id of its own: a question is called by its row, counted from 0.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, ClassVar

from sightline.probes.data_rows import DataRow
from sightline.probes.formats.base import FORMATS, FormatOption
from sightline.probes.formats.question_files import AskedRow, QuestionFiles, first_of, has_columns, text_of, texts_of

_START = re.compile(
    r'\s*\[\s*\{(?=[^}]*"dataset_name"\s*:)(?=[^}]*"image_path"\s*:)(?=[^}]*"type"\s*:)(?=[^}]*"question"\s*:)'
)


@FORMATS.register("ocrbench")
@dataclass(frozen=True)
class OcrBench(QuestionFiles):
    """``kind`` is the type of question; ``extra`` keeps the data set that a question was taken from."""

    name: ClassVar[str] = "ocrbench"
    description: ClassVar[str] = "OCRBench: the authors' JSON with images beside, or parquet with images inside"
    task: ClassVar[str] = "ocrbench"
    columns: ClassVar[tuple[tuple[str, ...], ...]] = (
        ("question_type", "type"), ("question",), ("answer", "answers"), ("image", "image_path"),
    )  # fmt: skip
    image_folder: ClassVar[str] = "OCRBench_Images"
    kinds: ClassVar[tuple[str, ...]] = (
        "Regular Text Recognition", "Irregular Text Recognition", "Artistic Text Recognition",
        "Handwriting Recognition", "Digit String Recognition", "Non-Semantic Text Recognition",
        "Scene Text-centric VQA", "Doc-oriented VQA", "Key Information Extraction",
        "Handwritten Mathematical Expression Recognition",
    )  # fmt: skip

    jpeg: Annotated[
        int | None, FormatOption("Write images inside the data as RGB JPEGs of this quality; the artifact's is 95.")
    ] = None

    @classmethod
    def recognises(cls, start: str) -> bool:
        return _START.match(start) is not None or has_columns(start, "question_type", "question", "answer", "image")

    @property
    def quality(self) -> int | None:
        return self.jpeg

    def asked(self, row: DataRow) -> AskedRow:
        cells = row.cells
        stated = text_of(cells.get("image_path"))
        return AskedRow(
            question_id=str(row.number),
            question=text_of(cells.get("question")),
            answers=tuple(dict.fromkeys(texts_of(first_of(cells, "answer", "answers")))),
            image=stated or f"ocrbench_{row.number:04d}.png",
            image_id=f"ocrbench-{row.number}",
            kind=text_of(first_of(cells, "question_type", "type")),
            extra={"dataset": text_of(first_of(cells, "dataset", "dataset_name"))},
        )
