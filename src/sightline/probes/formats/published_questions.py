"""Published sets of open questions, each declared: how its files begin, and in which columns what is asked stands.

All ship as the authors' JSON with images beside it, and as parquet with images inside (``{bytes, path}``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from sightline.probes.formats.base import FORMATS, FormatOption
from sightline.probes.formats.question_files import QuestionFiles
from sightline.probes.regions import ANSWER, Order, Units


@FORMATS.register("textvqa")
@dataclass(frozen=True)
class TextVqa(QuestionFiles):
    """``TextVQA_0.5.1_val.json``; parquet of lmms-lab/textvqa, and ``textvqa_val`` of lmms-lab/LMMs-Eval-Lite.

    All ten answers are kept, repetitions too: how many people gave one is its score.
    """

    name: ClassVar[str] = "textvqa"
    description: ClassVar[str] = "TextVQA: the authors' JSON with images beside, or parquet with images inside"
    task: ClassVar[str] = "textvqa"
    begins: ClassVar[re.Pattern[str]] = re.compile(
        r'\s*\{[^\[]*"dataset_name"\s*:\s*"textvqa"|[^}]*"flickr_(?:original|300k)_url"\s*:'
    )
    told_by: ClassVar[str] = "question_id image_id answers image"
    parts: ClassVar[Mapping[str, str]] = {
        "question_id": "question_id", "question": "question", "answers": "answers", "image_id": "image_id",
    }  # fmt: skip
    image_ids: ClassVar[tuple[str, ...]] = ("{image_id}",)
    image_name: ClassVar[str] = "train_images/{image_id}.jpg"


@FORMATS.register("textvqa_gt")
@dataclass(frozen=True)
class TextVqaGroundTruth(QuestionFiles):
    """jrzhang/TextVQA_GT_bbox: one region for a question of TextVQA's validation part, the answer's.

    Above all it is evidence for TextVQA's own questions, which have the same ids (``probes evidence --questions``).
    """

    name: ClassVar[str] = "textvqa_gt"
    description: ClassVar[str] = "TextVQA_GT_bbox: a box for the answer of each question, for probes evidence"
    task: ClassVar[str] = "textvqa"
    begins: ClassVar[re.Pattern[str]] = re.compile(
        r'[^}]*"dataset_id"\s*:[^}]*"bbox"\s*:|[^}]*"bbox"\s*:[^}]*"dataset_id"\s*:'
    )
    told_by: ClassVar[str] = "dataset_id bbox image"
    parts: ClassVar[Mapping[str, str]] = {
        "question_id": "dataset_id question_id", "question": "question", "answers": "answer answers", "box": "bbox",
        "image": "image",
    }  # fmt: skip
    image_name: ClassVar[str] = "{question_id}.jpg"
    box_order: ClassVar[Order] = "xywh"
    box_units: ClassVar[Units] = "pixels"
    box_role: ClassVar[str] = ANSWER


@FORMATS.register("docvqa")
@dataclass(frozen=True)
class DocVqa(QuestionFiles):
    """DocVQA, single pages: ``val_v1.0.json``; parquet of lmms-lab/DocVQA, and ``docvqa_val`` of LMMs-Eval-Lite.

    As its site ships it, the files lie in ``spdocvqa_qas`` and the images in ``spdocvqa_images`` beside it. ``extra``
    keeps the types of a question, where the file has them: form, table/list, layout, ...
    """

    name: ClassVar[str] = "docvqa"
    description: ClassVar[str] = "DocVQA: the authors' JSON with images beside, or parquet with images inside"
    task: ClassVar[str] = "docvqa"
    image_folder: ClassVar[str] = "spdocvqa_images"
    begins: ClassVar[re.Pattern[str]] = re.compile(
        r'\s*\{[^\[]*"dataset_name"\s*:\s*"docvqa"|[^}]*"ucsf_document_id"\s*:'
    )
    told_by: ClassVar[str] = "questionId question answers image"
    parts: ClassVar[Mapping[str, str]] = {
        "question_id": "questionId question_id", "question": "question", "answers": "answers", "image": "image",
    }  # fmt: skip
    image_ids: ClassVar[tuple[str, ...]] = ("{ucsf_document_id}_{ucsf_document_page_no}", "{question_id}")
    image_name: ClassVar[str] = "documents/{image_id}.png"
    kept: ClassVar[Mapping[str, str]] = {"question_types": "question_types"}


@FORMATS.register("ocrbench")
@dataclass(frozen=True)
class OcrBench(QuestionFiles):
    """``kind`` is the type of question; ``extra`` keeps the data set that a question was taken from.

    Its questions have no ids: they are numbered as they stand.
    """

    name: ClassVar[str] = "ocrbench"
    description: ClassVar[str] = "OCRBench: the authors' JSON with images beside, or parquet with images inside"
    task: ClassVar[str] = "ocrbench"
    image_folder: ClassVar[str] = "OCRBench_Images"
    begins: ClassVar[re.Pattern[str]] = re.compile(
        r'\s*\[\s*\{(?=[^}]*"dataset_name"\s*:)(?=[^}]*"image_path"\s*:)(?=[^}]*"type"\s*:)(?=[^}]*"question"\s*:)'
    )
    told_by: ClassVar[str] = "question_type question answer image"
    parts: ClassVar[Mapping[str, str]] = {
        "kind": "question_type type", "question": "question", "answers": "answer answers", "image": "image_path image",
    }  # fmt: skip
    image_ids: ClassVar[tuple[str, ...]] = ("ocrbench-{number}",)
    image_name: ClassVar[str] = "ocrbench_{number:04d}.png"
    kept: ClassVar[Mapping[str, str]] = {"dataset": "dataset dataset_name"}
    one_of_each: ClassVar[bool] = True
    kinds: ClassVar[tuple[str, ...]] = (
        "Regular Text Recognition", "Irregular Text Recognition", "Artistic Text Recognition",
        "Handwriting Recognition", "Digit String Recognition", "Non-Semantic Text Recognition",
        "Scene Text-centric VQA", "Doc-oriented VQA", "Key Information Extraction",
        "Handwritten Mathematical Expression Recognition",
    )  # fmt: skip

    jpeg: Annotated[
        int | None, FormatOption("Write images inside the data as RGB JPEGs of this quality; the artifact's is 95.")
    ] = None

    @property
    def quality(self) -> int | None:
        return self.jpeg
