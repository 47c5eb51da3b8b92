"""Draws pages with open questions, whose answers and evidence are known because the page was drawn, and writes them as
TextVQA, DocVQA and OCRBench are published, with everything that comes beside.

What lies below a folder afterwards::

    textvqa/TextVQA_0.5.1_val.json, train_images/*.jpg, validation-*.parquet, lite-*.parquet, boxes-*.parquet
    docvqa/val_v1.0_withQT.json, documents/*.png, ocr_results/*.json, validation-*.parquet, lite-*.parquet
    ocrbench/OCRBench.json, OCRBench_Images/**, test-*.parquet
    qa/questions.jsonl, questions.csv, images/*.png
    textvqa/annotations.jsonl, docvqa/annotations.jsonl: rows of typed evidence
"""

from __future__ import annotations

import csv
import io
import json
import random
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from PIL import Image

from lab.scenes.compose import CANVAS, Scene, draw, inside
from lab.scenes.page_designs import compose
from sightline.core.probe import Box
from sightline.places.writing import whole_path, write_whole
from sightline.probes.data_rows import write_text
from sightline.probes.formats.published_questions import PUBLISHED
from sightline.probes.regions import ANSWER
from sightline.probes.typed_rows import ANNOTATED, TypedBox, TypedRow, write_typed_rows

LABEL = "field_label"
LEAST_LETTERS = 3
"""Shorter words are not named in a question."""
LONG_ANSWER = 3
"""Words of an answer that is several words long."""


@dataclass(frozen=True)
class PlacedWord:
    """A word of a page and its box in pixels."""

    text: str
    box: Box


@dataclass(frozen=True)
class DrawnQuestion:
    """A question, its answer, and the words that it is about, each with its role."""

    text: str
    answer: str
    evidence: tuple[tuple[PlacedWord, str], ...]


@dataclass(frozen=True)
class DrawnPage:
    """One page: 448 x 448 pixels."""

    seed: int
    scene: Scene

    @cached_property
    def image(self) -> Image.Image:
        return draw(self.scene, self.seed)

    @cached_property
    def _files(self) -> dict[str, bytes]:
        return {}

    def encoded(self, form: str) -> bytes:
        """The image file, JPEG or PNG."""
        if form not in self._files:
            self._files[form] = image_file(self.image, form)
        return self._files[form]

    @cached_property
    def words(self) -> tuple[PlacedWord, ...]:
        """Words that lie wholly on the page, in the order in which they were written."""
        placed = (PlacedWord(word.text, self.scene.box(word)) for word in self.scene.words)
        return tuple(word for word in placed if inside(word.box))

    def questions(self, count: int) -> list[DrawnQuestion]:
        """So many questions at most: about a number (of every other page a word), about a row of words, then any."""
        rng = random.Random(f"questions:{self.seed}")
        beside, rows = _beside(self.words), _rows(self.words)
        rng.shuffle(beside)
        rng.shuffle(rows)
        numeric = self.seed % 2 == 0
        wanted = [asked for asked in beside if any(char.isdigit() for char in asked.answer) == numeric]
        plain_rows = [asked for asked in rows if not any(char.isdigit() for char in asked.answer)]
        first = [*wanted[:1], *(rows if numeric else plain_rows or rows)[:1]]
        return [*first, *(asked for asked in beside if asked not in first)][:count]


def drawn_pages(first_seed: int, count: int, kinds: Sequence[str]) -> list[DrawnPage]:
    """Pages of these kinds in turn, each of which can be asked about; seeds that give no question are passed over."""
    pages: list[DrawnPage] = []
    seed = first_seed
    while len(pages) < count:
        scene = compose(seed, "development", kinds[len(pages) % len(kinds)])
        scene.noise = 0.0  # which no image file can compress
        page = DrawnPage(seed, scene)
        if len(page.questions(2)) == 2:
            pages.append(page)
        seed += 1
    return pages


def _beside(words: Sequence[PlacedWord]) -> list[DrawnQuestion]:
    """``What is the text right of "X"?`` for every word that can be named and has one."""
    return [
        DrawnQuestion(f'What is the text right of "{word.text}"?', line[0].text, ((line[0], ANSWER), (word, LABEL)))
        for word in _nameable(words)
        if (line := _right_of(word, words))
    ]


def _rows(words: Sequence[PlacedWord]) -> list[DrawnQuestion]:
    """``What is written on this page from the word "X" to the word "Y"?`` where that is three words."""
    named = set(_nameable(words))
    found = []
    for word in _nameable(words):
        line = [word, *_right_of(word, words)][:LONG_ANSWER]
        if len(line) == LONG_ANSWER and line[-1] in named:
            answer = " ".join(each.text for each in line)
            question = f'What is written on this page from the word "{word.text}" to the word "{line[-1].text}"?'
            found.append(DrawnQuestion(question, answer, tuple((each, ANSWER) for each in line)))
    return found


def _nameable(words: Sequence[PlacedWord]) -> list[PlacedWord]:
    """Words of some length without quotation marks that occur once, case aside."""
    seen = Counter(word.text.casefold() for word in words)
    return [
        word
        for word in words
        if len(word.text) >= LEAST_LETTERS and '"' not in word.text and seen[word.text.casefold()] == 1
    ]


def _right_of(word: PlacedWord, words: Sequence[PlacedWord]) -> list[PlacedWord]:
    """Words on the line of ``word`` that begin behind it, from left to right."""
    _, top, right, bottom = word.box
    line = [
        other
        for other in words
        if other.box[0] >= right - 1
        and min(bottom, other.box[3]) - max(top, other.box[1]) > 0.5 * min(bottom - top, other.box[3] - other.box[1])
    ]
    return sorted(line, key=lambda other: other.box[0])


def image_file(image: Image.Image, form: str) -> bytes:
    """An image as the content of a file, JPEG or PNG."""
    target = io.BytesIO()
    image.save(target, format=form)
    return target.getvalue()


def fraction_box(box: Box) -> Box:
    """A box of a page in fractions."""
    return (box[0] / CANVAS, box[1] / CANVAS, box[2] / CANVAS, box[3] / CANVAS)


PAGES = 12
QUESTIONS = 2
"""For each page of TextVQA and DocVQA."""
PER_TYPE = 2
"""Questions of each type of OCRBench."""
ROWS_IN_GROUP = 5
FIRST_ID = 34_602
"""Of questions, as TextVQA's validation part begins."""
FIRST_SEEDS = {"textvqa": 650_000_000, "docvqa": 651_000_000, "ocrbench": 652_000_000}
PHOTOGRAPHS, DOCUMENTS = ("sign", "screen", "scatter"), ("receipt", "form", "table")
_RECOGNITION = "what is written in the image?"
_SOURCES = ("IIIT5K", "svt", "WordArt", "IAM", "ORAND", "NonSemanticText", "STVQA", "docVQA", "FUNSD", "HME100k")
"""A data set that OCRBench takes questions of each type from."""

Row = dict[str, Any]


@dataclass(frozen=True)
class StandIns:
    """Where the files are."""

    folder: Path

    def file(self, name: str) -> Path:
        return self.folder / name

    def shards(self, pattern: str) -> list[Path]:
        """Parquet files of one data set: ``textvqa/validation-*.parquet``."""
        return sorted(self.folder.glob(pattern))


def write_stand_ins(folder: Path) -> StandIns:
    """Draws and writes all of them; a few MB in a few seconds. The same files whenever it is called."""
    photographs = drawn_pages(FIRST_SEEDS["textvqa"], PAGES, PHOTOGRAPHS)
    documents = drawn_pages(FIRST_SEEDS["docvqa"], PAGES, DOCUMENTS)
    mixed = drawn_pages(FIRST_SEEDS["ocrbench"], PER_TYPE * len(PUBLISHED["ocrbench"].kinds), PHOTOGRAPHS + DOCUMENTS)
    _write_textvqa(folder / "textvqa", photographs)
    _write_docvqa(folder / "docvqa", documents)
    _write_ocrbench(folder / "ocrbench", mixed)
    _write_qa(folder / "qa", documents)
    return StandIns(folder)


def write_archive(path: Path) -> None:
    """All of them as one ``.tar.xz`` without dates or owners: what a demonstration of the paper unpacks."""
    with TemporaryDirectory() as folder, whole_path(path) as unfinished, tarfile.open(unfinished, "w:xz") as archive:
        write_stand_ins(Path(folder))
        for file in sorted(path for path in Path(folder).rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(file.relative_to(folder).as_posix())
            entry.size = file.stat().st_size
            with file.open("rb") as content:
                archive.addfile(entry, content)


def _asked(pages: Sequence[DrawnPage]) -> Iterator[tuple[int, DrawnPage, int, DrawnQuestion]]:
    """(number of the page, page, id of the question, question)."""
    number = FIRST_ID
    for place, page in enumerate(pages):
        for asked in page.questions(QUESTIONS):
            yield place, page, number, asked
            number += 1


def _write_textvqa(folder: Path, pages: Sequence[DrawnPage]) -> None:
    rows: list[Row] = []
    boxes: list[Row] = []
    typed: list[TypedRow] = []
    for place, page, question_id, asked in _asked(pages):
        image_id = f"{place + 0x3A8AE2:016x}"
        image = page.encoded("JPEG")
        write_whole(folder / "train_images" / f"{image_id}.jpg", image, make_parent=True)
        url = f"https://example.org/{image_id}.jpg"
        rows.append(
            {
                "image_id": image_id,
                "question_id": question_id,
                "question": asked.text,
                "question_tokens": asked.text.lower().rstrip("?").split(),
                "image": {"bytes": image, "path": None},
                "image_width": CANVAS,
                "image_height": CANVAS,
                "flickr_original_url": url,
                "flickr_300k_url": url,
                "answers": [asked.answer] * 8 + [asked.answer.lower(), "unanswerable"],
                "image_classes": ["Poster"],
                "set_name": "val",
            }
        )
        left, top, right, bottom = _around([word for word, role in asked.evidence if role == ANSWER])
        boxes.append(
            {
                "image": {"bytes": image, "path": None},
                "question": asked.text,
                "answer": rows[-1]["answers"],
                "dataset_id": str(question_id),
                "bbox": [left, top, right - left, bottom - top],
            }
        )
        typed.append(_typed("textvqa", question_id, asked))
    document = {"dataset_type": "val", "dataset_name": "textvqa", "dataset_version": "0.5.1"}
    _write_json(folder / "TextVQA_0.5.1_val.json", {**document, "data": _without_images(rows)})
    _write_shards(folder, "validation", rows, 2)
    _write_shards(folder, "lite", _one_of_each_page(rows), 1)
    _write_shards(folder, "boxes", boxes, 1)
    write_typed_rows(folder / "annotations.jsonl", typed)


def _write_docvqa(folder: Path, pages: Sequence[DrawnPage]) -> None:
    rows: list[Row] = []
    typed: list[TypedRow] = []
    for place, page, question_id, asked in _asked(pages):
        document, number = f"xnbl{place + 37:04d}", str(place + 1)
        image = page.encoded("PNG")
        write_whole(folder / "documents" / f"{document}_{number}.png", image, make_parent=True)
        _write_json(folder / "ocr_results" / f"{document}_{number}.json", _recognised(page))
        rows.append(
            {
                "questionId": str(question_id),
                "question": asked.text,
                "question_types": ["table/list" if page.scene.kind == "table" else "form"],
                "image": {"bytes": image, "path": None},
                "docId": 14_465 + place,
                "ucsf_document_id": document,
                "ucsf_document_page_no": number,
                "answers": list(dict.fromkeys((asked.answer, asked.answer.lower()))),
                "data_split": "val",
            }
        )
        typed.append(_typed("docvqa", question_id, asked))
    beside = [
        {
            **row,
            "questionId": int(row["questionId"]),
            "image": f"documents/{row['ucsf_document_id']}_{row['ucsf_document_page_no']}.png",
        }
        for row in rows
    ]
    head = {"dataset_name": "docvqa", "dataset_version": "1.0", "dataset_split": "val"}
    _write_json(folder / "val_v1.0_withQT.json", {**head, "data": beside})
    _write_shards(folder, "validation", rows, 2)
    _write_shards(folder, "lite", _one_of_each_page(rows), 1)
    write_typed_rows(folder / "annotations.jsonl", typed)


def _write_ocrbench(folder: Path, pages: Sequence[DrawnPage]) -> None:
    left = iter(pages)
    rows: list[Row] = []
    beside: list[Row] = []
    for kind, source in zip(PUBLISHED["ocrbench"].kinds, _SOURCES, strict=True):
        for number in range(PER_TYPE):
            page = next(left)
            (asked,) = page.questions(1)
            recognition = kind.endswith("Recognition")
            image = _cut_out(page, asked.evidence[0][0]) if recognition else page.encoded("PNG")
            name = f"{source}/imgs/{number:09d}.png"
            write_whole(folder / "OCRBench_Images" / name, image, make_parent=True)
            question = _RECOGNITION if recognition else asked.text
            answer = asked.evidence[0][0].text if recognition else asked.answer
            rows.append(
                {
                    "dataset": source,
                    "question": question,
                    "question_type": kind,
                    "answer": [answer],
                    "image": {"bytes": image, "path": None},
                }
            )
            beside.append(
                {
                    "dataset_name": source,
                    "id": number,
                    "image_path": name,
                    "question": question,
                    "answers": answer if recognition else [answer],
                    "type": kind,
                }
            )
    _write_json(folder / "OCRBench.json", beside)
    _write_shards(folder, "test", rows, 1)


def _write_qa(folder: Path, pages: Sequence[DrawnPage]) -> None:
    lines: list[Row] = []
    for place, page, _, asked in _asked(pages):
        name = f"page_{place:02d}.png"
        write_whole(folder / "images" / name, page.encoded("PNG"), make_parent=True)
        lines.append(
            {
                "image": name,
                "question": asked.text,
                "answers": [asked.answer],
                "boxes": [list(fraction_box(word.box)) for word, _ in asked.evidence],
                "roles": [role for _, role in asked.evidence],
            }
        )
    write_text(folder / "questions.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, list(lines[0]))
    writer.writeheader()
    for line in lines:
        writer.writerow({key: json.dumps(cell) if isinstance(cell, list) else cell for key, cell in line.items()})
    write_text(folder / "questions.csv", table.getvalue())


def _recognised(page: DrawnPage) -> Row:
    """The page's words as Microsoft's Read service writes them, word by word."""

    def outline(word: PlacedWord) -> list[int]:
        left, top, right, bottom = (round(value) for value in word.box)
        return [left, top, right, top, right, bottom, left, bottom]

    lines = [
        {"boundingBox": outline(word), "text": word.text, "words": [{"boundingBox": outline(word), "text": word.text}]}
        for word in page.words
    ]
    found = {"page": 1, "clockwiseOrientation": 0.0, "width": CANVAS, "height": CANVAS, "unit": "pixel", "lines": lines}
    return {"status": "Succeeded", "recognitionResults": [found]}


def _typed(task: str, question_id: int, asked: DrawnQuestion) -> TypedRow:
    boxes = tuple(
        TypedBox(round(left, 2), round(top, 2), round(right - left, 2), round(bottom - top, 2), f"{role}:{word.text}")
        for word, role in asked.evidence
        for left, top, right, bottom in [word.box]
    )
    return TypedRow(f"{task}:{question_id}", task, str(question_id), len(boxes), boxes, "", ANNOTATED)


def _around(words: Sequence[PlacedWord]) -> tuple[float, float, float, float]:
    left, top, right, bottom = zip(*(word.box for word in words), strict=True)
    return min(left), min(top), max(right), max(bottom)


def _cut_out(page: DrawnPage, word: PlacedWord) -> bytes:
    """The image file of one word, 64 pixels high."""
    left, top, right, bottom = (round(value) for value in word.box)
    image = page.image.crop((left - 4, top - 4, right + 4, bottom + 4))
    return image_file(image.resize((max(64, round(64 * image.width / image.height)), 64)), "PNG")


def _without_images(rows: Sequence[Row]) -> list[Row]:
    return [{key: cell for key, cell in row.items() if key != "image"} for row in rows]


def _one_of_each_page(rows: Sequence[Row]) -> list[Row]:
    """The first question of one page, the last of the next: short and long ones."""
    return [rows[place + place // QUESTIONS % QUESTIONS] for place in range(0, len(rows), QUESTIONS)]


def _write_json(path: Path, document: Any) -> None:
    write_text(path, json.dumps(document, ensure_ascii=False) + "\n")


def _write_shards(folder: Path, split: str, rows: Sequence[Row], shards: int) -> None:
    """Parquet with images as ``{bytes, path}``, in a few row groups."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    each = -(-len(rows) // shards)
    for shard in range(shards):
        table = pa.Table.from_pylist(list(rows[shard * each : (shard + 1) * each]))
        if pa.types.is_null(table.schema.field("image").type.field("path").type):
            image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
            table = table.cast(table.schema.set(table.schema.get_field_index("image"), pa.field("image", image)))
        pq.write_table(table, folder / f"{split}-{shard:05d}-of-{shards:05d}.parquet", row_group_size=ROWS_IN_GROUP)
