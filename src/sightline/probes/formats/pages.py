"""What formats of scanned pages share: one file per page, a folder of them, the image beside it, words and lines."""

from __future__ import annotations

import math
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from sightline.core.probe import Box
from sightline.errors import SightlineError, located
from sightline.probes.data_rows import read_bytes
from sightline.probes.formats.base import Format, FormatOption
from sightline.probes.packed_images import PageImages
from sightline.probes.regions import ImageRegions, Ingest, IngestCounts, hull, place

Level = Literal["words", "lines"]


class PageText(NamedTuple):
    """A transcription, its corners in the unit of the page, and how sure its reader was (0 to 100), if that is said."""

    text: str
    box: Box
    confidence: float | None = None


@dataclass(frozen=True)
class ScannedPage:
    """One image as its annotation describes it."""

    words: Sequence[PageText]
    lines: Sequence[PageText]
    image: str = ""
    """Its name as the file states it, if it does."""
    width: float | None = None
    """In the unit of the corners; None where the file does not say, which makes it the image's width in pixels."""
    height: float | None = None
    pixels: bool = True
    """Whether that unit is the pixel."""
    image_id: str = ""
    """The image's name without its ending, if the file has no other."""
    dataset: str = ""


@dataclass(frozen=True)
class PageFiles(Format):
    """Reads a file, or all files of the format below a folder, in the order of their names."""

    level: Annotated[Level, FormatOption("Read words, or whole lines (with --lines).")] = "words"

    box_source: ClassVar[str] = "annotation"
    begins: ClassVar[str]
    """A pattern that stands somewhere in the beginning of such a file, and of no other."""

    @classmethod
    def recognises(cls, start: str) -> bool:
        return re.search(cls.begins, start) is not None

    @abstractmethod
    def pages(self, file: Path) -> Iterator[ScannedPage]:
        """The pages of one file; what is wrong with it is said with file and place."""

    def text_of(self, found: PageText) -> str:
        """What counts as its transcription."""
        return found.text

    def read(self, path: Path, images: Path | None) -> Ingest:
        files = self.files(path)
        beside = PageImages(path, images)
        counts = IngestCounts(files_left_out=len(self.candidates(path)) - len(files))
        records: dict[str, ImageRegions] = {}
        other_level = 0
        for file in files:
            pages = list(self.pages(file))
            if len(pages) > 1 and not all(page.image for page in pages):
                raise SightlineError(f"{file}: holds {len(pages)} pages, not all of which name their image; split it")
            for page in pages:
                other_level += len(page.lines if self.level == "words" else page.words)
                # A file of several pages is called like none of their images.
                image = beside.find(page.image, file if len(pages) == 1 else None)
                record = self._record(page, image, file, beside, counts)
                if record.image_id in records:
                    raise SightlineError(f"{file}: image {record.image!r} was already described by another page")
                records[record.image_id] = record
        described = tuple(record for record in records.values() if record.words)
        if not described and other_level:
            way_out = "with --lines" if self.level == "words" else "without --lines"
            other = "lines" if self.level == "words" else "words"
            raise SightlineError(f"{path}: has no {self.level}, only {other}; read those {way_out}")
        counts.images, counts.images_without_boxes = len(described), len(records) - len(described)
        return Ingest(described, counts, images=beside.root)

    def _record(
        self, page: ScannedPage, image: str, file: Path, beside: PageImages, counts: IngestCounts
    ) -> ImageRegions:
        width, height = page.width, page.height
        if width is None or height is None:
            size = beside.size(image)
            if size is None:
                raise SightlineError(
                    f"{file}: does not say how large its image is, and {image!r} was not found; "
                    "put it beside the file or give --images"
                )
            width, height = size
        texts = page.words if self.level == "words" else page.lines
        with located(file):
            words = place(((self.text_of(found), found.box) for found in texts), width, height, counts)
        return ImageRegions(
            image_id=page.image_id or image.rpartition(".")[0] or image,
            image=image,
            words=words,
            width=whole(width) if page.pixels else None,
            height=whole(height) if page.pixels else None,
            dataset=page.dataset,
            box_source=self.box_source,
        )


@dataclass(frozen=True)
class OcrPages(PageFiles):
    """Pages that a program may have read, which says how sure it was."""

    min_confidence: Annotated[
        float, FormatOption("Texts of less confidence (0 to 100) stay as boxes without text.")
    ] = 0.0

    def text_of(self, found: PageText) -> str:
        unsure = found.confidence is not None and found.confidence < self.min_confidence
        return "" if unsure else found.text


def joined(words: Sequence[PageText]) -> PageText:
    """The line that words make; as sure as the least sure of them. There is at least one."""
    said = [word.confidence for word in words if word.confidence is not None]
    text = " ".join(word.text for word in words if word.text)
    return PageText(text, hull(word.box for word in words), min(said) if said else None)


def number(text: str | None) -> float | None:
    """A finite number from an attribute, or None."""
    try:
        value = float(text or "")
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def extent(text: str | None) -> float | None:
    """A width or height; None where it is missing or not positive, as some programs leave it."""
    value = number(text)
    return value if value is not None and value > 0.0 else None


def percent(text: str | None) -> float | None:
    """A confidence that is written from 0 to 1, as one from 0 to 100."""
    value = number(text)
    return None if value is None else 100.0 * value


def whole(value: float) -> int | float:
    """Pixels are counted: 640, not 640.0."""
    return int(value) if value == int(value) else value


# XML from anywhere: no document type, hence no entities to expand or to fetch; bounded in size and depth.

MAX_XML_BYTES = 64 * 2**20
MAX_DEPTH = 100


def read_xml(path: Path, root: str) -> Element:
    """The root element, refused where it is not called ``root``.

    Tags and attributes lose their namespaces, of which every version of a schema has its own.
    """
    builder = TreeBuilder()
    depth = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise SightlineError(f"{path} line {parser.CurrentLineNumber}: elements nest deeper than {MAX_DEPTH}")
        builder.start(_local(tag), {_local(name): value for name, value in attributes.items()})

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(_local(tag))

    def refuse_doctype(*_: Any) -> None:
        raise SightlineError(
            f"{path} line {parser.CurrentLineNumber}: declares a document type, which is not read; "
            "delete the <!DOCTYPE ...> declaration"
        )

    parser = expat.ParserCreate(namespace_separator="}")
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = refuse_doctype
    try:
        parser.Parse(read_bytes(path, MAX_XML_BYTES), True)
    except expat.ExpatError as problem:
        raise SightlineError(f"{path} line {problem.lineno}: not XML: {expat.ErrorString(problem.code)}") from None
    except (LookupError, ValueError) as problem:  # an encoding that nobody knows
        raise SightlineError(f"{path}: not XML: {problem}") from None
    found = builder.close()
    if found.tag != root:
        raise SightlineError(f"{path}: its root is <{found.tag}>, not <{root}>")
    return found


def below(element: Element, tag: str) -> Iterator[Element]:
    """All descendants of this name, in document order."""
    return (found for found in element.iter(tag) if found is not element)


def _local(name: str) -> str:
    return name.rpartition("}")[2]
