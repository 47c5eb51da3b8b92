"""What formats of open questions share: rows in shards, images inside or beside, answers, evidence boxes.

A format declares in which columns it stands what is asked, and what its images are called. Rows without image, question
or answer are passed over and counted. A question's id is ``{task}:{question id}``. Rows that show the same pixels are
about one image, the first, whatever their files and ids.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import chain, islice
from pathlib import Path
from string import Formatter
from typing import Annotated, Any, ClassVar

from sightline.core.probe import Box, Probe
from sightline.errors import SightlineError
from sightline.probes.data_rows import PARQUET, DataRow, data_rows
from sightline.probes.dialects import check_open
from sightline.probes.formats.base import Format, FormatOption
from sightline.probes.packed_images import PackedImages, PageImages, image_header, packed_bytes
from sightline.probes.regions import (
    BoxFormat,
    ImageRegions,
    Ingest,
    IngestCounts,
    Order,
    Units,
    check_roles,
    clip_to_image,
    contradiction,
    corners,
    four_numbers,
    is_storable,
    leaves_image,
    to_fractions,
)

DECODED = 32
"""Images that are held at once while pictures are compared."""


@dataclass(frozen=True)
class AskedRow:
    """What one row asks."""

    question_id: str
    question: str
    answers: tuple[str, ...]
    image: str
    """The name of its file. An image inside the data is unpacked under it, with the ending of what it is."""
    image_id: str
    kind: str = ""
    """The type of question, where the data tells several apart; else the task."""
    task: str = ""
    """Where it is another than the format's."""
    boxes: tuple[Box, ...] = ()
    """Evidence as it is written, four numbers each."""
    roles: tuple[str, ...] = ()
    decoy: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class QuestionFiles(Format):
    """Reads parquet, a JSON document, JSON lines or a table; several files at once are shards of one data set."""

    id_prefix: Annotated[str, FormatOption("What ids begin with instead of the task, textvqa_val_lite say.")] = ""

    task: ClassVar[str]
    """How answers are scored."""
    begins: ClassVar[re.Pattern[str]]
    """How the publisher's JSON begins."""
    told_by: ClassVar[str]
    """Columns that tell the publisher's parquet, separated by blanks."""
    parts: ClassVar[Mapping[str, str]]
    """Part of a question -> the columns that it may stand in, separated by blanks; the data must have one of each.

    Parts are question_id (else the row's number), question, answers, image, image_id, kind, task, box or boxes, roles
    and decoy.
    """
    further: ClassVar[Mapping[str, str]] = {}
    """Parts that the data may lack."""
    kept: ClassVar[Mapping[str, str]] = {}
    """Key of ``extra`` -> columns, as in ``parts``."""
    image_ids: ClassVar[tuple[str, ...]] = ()
    """Patterns over columns, ``{number}`` and ``{question_id}``: the first with all its values is the image's id."""
    image_name: ClassVar[str]
    """Pattern, over ``{image_id}`` too, of the name of an image whose row does not name it."""
    one_of_each: ClassVar[bool] = False
    """Whether an answer that a row repeats counts once."""
    box_order: ClassVar[Order] = "xyxy"
    box_units: ClassVar[Units] = "normalised"
    """How the four numbers of a box are meant."""
    box_role: ClassVar[str] = ""
    """Of every box, where the data does not say."""
    image_folder: ClassVar[str] = ""
    """Where the publisher keeps images that names are relative to."""
    kinds: ClassVar[tuple[str, ...]] = ()
    """The publisher's types of questions, in order."""

    @classmethod
    def recognises(cls, start: str) -> bool:
        return cls.begins.match(start) is not None or has_columns(start, *cls.told_by.split())

    @property
    def columns(self) -> list[list[str]]:
        """Columns that the data must have, each as the names that it may go by."""
        return [names.split() for names in self.parts.values()]

    def asked(self, row: DataRow) -> AskedRow:
        """What a row asks. What it lacks is left empty: the row is then passed over."""
        found = {part: first_of(row.cells, *names.split()) for part, names in {**self.parts, **self.further}.items()}
        values: dict[str, str | int] = {
            name: text_of(cell) for name, cell in row.cells.items() if not isinstance(cell, dict | bytes)
        }
        values |= {"number": row.number, "question_id": text_of(found.get("question_id")) or str(row.number)}
        values["image_id"] = next((made for pattern in self.image_ids if (made := _filled(pattern, values))), "")
        answers = texts_of(found["answers"])
        stated = found.get("image")
        boxes = _boxes(found.get("boxes")) if found.get("box") is None else _boxes([found["box"]])
        kept = {key: first_of(row.cells, *names.split()) for key, names in self.kept.items()}
        return AskedRow(
            question_id=str(values["question_id"]),
            question=text_of(found["question"]),
            answers=tuple(dict.fromkeys(answers)) if self.one_of_each else answers,
            image=stated.strip() if isinstance(stated, str) else _filled(self.image_name, values),
            image_id=str(values["image_id"]),
            kind=text_of(found.get("kind")),
            task=text_of(found.get("task")),
            boxes=boxes,
            roles=check_roles(texts_of(found.get("roles"))) or (self.box_role,) * bool(self.box_role) * len(boxes),
            decoy=text_of(found.get("decoy")),
            extra={
                key: list(texts_of(cell)) if isinstance(cell, list) else text_of(cell)
                for key, cell in kept.items()
                if cell
            },
        )

    @property
    def box_format(self) -> BoxFormat:
        return BoxFormat(self.box_order, self.box_units)

    @property
    def quality(self) -> int | None:
        """Of JPEGs that images inside the data are written as; None writes them as they are."""
        return None

    def read(self, path: Path, images: Path | None) -> Ingest:
        return self.read_shards(self.files(path), images)

    def read_shards(self, files: Sequence[Path], images: Path | None) -> Ingest:
        counts = IngestCounts()
        packed = PackedImages(lambda: self._images(files), self.quality)
        beside = PageImages(files[0], images)
        contents: dict[bytes, str] = {}
        copies: dict[str, str] = {}
        sizes: dict[str, tuple[int, int]] = {}
        probes: list[Probe] = []
        holds_images = False
        rows = 0
        for row in data_rows(files, self.columns):
            rows += 1
            try:
                asked = self.asked(row)
                if not _is_complete(asked, row, counts):
                    continue
                data = packed_bytes(row.cells.get("image"))
                if data is not None:
                    image, holds_images = packed.name(asked.image, data, row.where), True
                    copies[image] = contents.setdefault(sha256(data).digest(), image)
                    sizes[image] = image_header(data, row.where)[1]
                else:
                    cell = row.cells.get("image")
                    own_path = text_of(cell.get("path")) if isinstance(cell, dict) else ""
                    image = beside.find(own_path or asked.image, below=self.image_folder)
                regions, roles = self._evidence(asked, image, data, beside, counts)
                probe = self._probe(asked, image, regions, roles)
                check_open(probe)
            except SightlineError as problem:
                said = str(problem)
                raise SightlineError(said if said.startswith(row.where) else f"{row.where}: {said}") from None
            probes.append(probe)
        if not probes:
            why = f"none of its questions can be used: {', '.join(counts.notes())}"
            raise SightlineError(f"{files[0]}: {why if rows else 'holds no questions below its first line'}")
        named = len({(probe.image, probe.image_id) for probe in probes})
        different = list(dict.fromkeys(copies.get(probe.image, probe.image) for probe in probes))
        same = self._same(packed, beside, sizes, different)
        records: dict[str, ImageRegions] = {}
        for i, probe in enumerate(probes):
            content = copies.get(probe.image, probe.image)
            image = same.get(content, content)
            record = records.setdefault(image, ImageRegions(probe.image_id, image, (), dataset=self.name))
            probes[i] = replace(probe, image=image, image_id=record.image_id)
        counts.images, counts.questions, counts.images_same_as_another = len(records), len(probes), named - len(records)
        return Ingest(
            tuple(records.values()),
            counts,
            images=images if holds_images else beside.root,
            probes=tuple(probes),
            kinds=self.kinds,
            packed=packed if holds_images else None,
        )

    def _images(self, files: Sequence[Path]) -> Iterator[tuple[str, bytes]]:
        """Every image inside the files, under the name that its row gives it."""
        for row in data_rows(files, self.columns):
            data = packed_bytes(row.cells.get("image"))
            if data is not None:
                yield self.asked(row).image, data

    def _same(
        self, packed: PackedImages, beside: PageImages, sizes: dict[str, tuple[int, int]], names: Sequence[str]
    ) -> dict[str, str]:
        """Names of images -> the first with the same pixels. Only images that share their size are decoded.

        ``sizes`` are those of images inside the data. What cannot be read is nobody's copy: whoever needs it says so.
        """
        outside = [name for name in names if name not in sizes]
        for name in outside:
            with suppress(SightlineError):
                if size := beside.size(name):
                    sizes[name] = size
        known = [name for name in names if name in sizes]
        counts = Counter(sizes[name] for name in known)
        alike = {name for name in known if counts[sizes[name]] > 1}
        inside = packed.each(alike.difference(outside)) if alike.difference(outside) else ()
        opened = ((name, beside.root / name) for name in outside if name in alike and beside.root is not None)
        found: dict[str, str] = {}
        with ThreadPoolExecutor() as pool:
            stored = chain(((name, io.BytesIO(data)) for name, data in inside), opened)
            while some := list(islice(stored, DECODED)):
                found |= {name: digest for name, digest in pool.map(_pixels, some) if digest}
        first: dict[str, str] = {}
        return {name: first.setdefault(found[name], name) for name in names if name in found}

    def _probe(self, asked: AskedRow, image: str, regions: tuple[Box, ...], roles: tuple[str, ...]) -> Probe:
        task = asked.task or self.task
        return Probe(
            id=f"{self.id_prefix or task}:{asked.question_id}",
            image=image,
            image_id=asked.image_id or image.rpartition(".")[0] or image,
            question=asked.question,
            label="open",
            target_text="",
            source_text="",
            regions=regions,
            kind=asked.kind or task,
            answers=asked.answers,
            roles=roles,
            task=task,
            decoy=asked.decoy,
            extra=asked.extra,
        )

    def _evidence(
        self, asked: AskedRow, image: str, data: bytes | None, beside: PageImages, counts: IngestCounts
    ) -> tuple[tuple[Box, ...], tuple[str, ...]]:
        """Regions in fractions of the image and their roles, as far as they lie within the image."""
        if not asked.boxes:
            return (), ()
        if asked.roles and len(asked.roles) != len(asked.boxes):
            raise SightlineError(f"its boxes and roles differ in number ({len(asked.boxes)} and {len(asked.roles)})")
        form = self.box_format
        size = (1, 1) if form.units == "normalised" else _size(image, data, beside)
        kept: list[tuple[Box, str]] = []
        for box, role in zip(asked.boxes, asked.roles or [""] * len(asked.boxes), strict=True):
            corner_box = corners(box, form.order)
            fractions = to_fractions(corner_box, *size)
            wrong = contradiction(corner_box, fractions, form)
            if wrong is not None:
                raise SightlineError(f"box {list(box)} {wrong}; are they {form.order} in {form.units}?")
            clipped = clip_to_image(fractions)
            if clipped is None:
                counts.dropped_no_area += 1
                continue
            counts.regions += 1
            counts.clipped_boxes += leaves_image(fractions)
            kept.append((clipped, role))
        roles = tuple(role for _, role in kept) if asked.roles else ()
        return tuple(box for box, _ in kept), roles


def _pixels(stored: tuple[str, Path | io.BytesIO]) -> tuple[str, str]:
    """The name of an image and the digest of its pixels; "" where they cannot be read."""
    from sightline.probes.images import open_image_file, pixel_digest

    name, source = stored
    try:
        return name, pixel_digest(open_image_file(source, Path(name)))
    except SightlineError:
        return name, ""


def _is_complete(asked: AskedRow, row: DataRow, counts: IngestCounts) -> bool:
    """Whether a row has a question, answers and an image; what is missing first is counted."""
    cell = row.cells.get("image", "named elsewhere")
    shown = packed_bytes(cell) or cell.get("path") if isinstance(cell, dict) else cell
    if not asked.question:
        counts.questions_without_text += 1
    elif not asked.answers:
        counts.questions_without_answers += 1
    elif not asked.image or not shown:
        counts.questions_without_image += 1
    else:
        return True
    return False


def _filled(pattern: str, values: Mapping[str, Any]) -> str:
    """The pattern with its values; "" where one of them is missing or empty."""
    needed = [name for _, name, _, _ in Formatter().parse(pattern) if name]
    return pattern.format_map(values) if all(values.get(name) not in (None, "") for name in needed) else ""


def _boxes(value: Any) -> tuple[Box, ...]:
    """Boxes of a cell: a list, or one that is written as JSON."""
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


def _size(image: str, data: bytes | None, beside: PageImages) -> tuple[int, int]:
    size = beside.size(image) if data is None else image_header(data, image)[1]
    if size is None:
        raise SightlineError(f"boxes in pixels need the size of {image!r}: give its folder with --images")
    return size


def text_of(value: object) -> str:
    """A cell as text; "" where it holds none, or what no file could store."""
    text = "" if value is None or value != value else str(value).strip()  # not a number: an empty cell of pandas
    return text if is_storable(text) else ""


def texts_of(value: object) -> tuple[str, ...]:
    """Texts of a cell that holds a list, a JSON list written as text, or a single text; empty ones are left out."""
    if isinstance(value, str) and value.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):  # an answer may begin with a bracket
            value = json.loads(value)
    values = value if isinstance(value, list | tuple) else [value]
    if deeper := [each for each in values if isinstance(each, dict | list | tuple)]:
        raise SightlineError(f"{str(deeper[0])[:40]!r} is no text, nor a list of texts")
    return tuple(text for each in values if (text := text_of(each)))


def first_of(cells: Mapping[str, Any], *names: str) -> Any:
    """The cell under the first of these names that has one."""
    return next((cells[name] for name in names if cells.get(name) is not None), None)


def has_columns(start: str, *columns: str) -> bool:
    """Whether a file that begins like this is parquet with these columns."""
    mark, *found = start.splitlines() or [""]
    return mark == PARQUET.decode() and set(columns) <= set(found)
