"""Pages: every image, frame and PDF page of a folder as one image that questions can be about.

Images that need nothing are used where they are. Where anything has to be converted, all pages stand below one folder:
converted ones as PNG, named after the digest of their source, so that they are made once; the others as links.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import chain
from pathlib import Path

from PIL import Image, UnidentifiedImageError

from sightline.errors import SightlineError, first_line, printable
from sightline.places.writing import make_folder, write_whole
from sightline.probes.data_rows import file_digest
from sightline.probes.fetched_images import RASTER_FORMATS, check_image_name
from sightline.probes.images import MAX_PIXELS, MAX_RATIO, has_known_white, image_size, page_frames, stored_as, to_rgb
from sightline.probes.regions import is_storable
from sightline.progress import Progress

DPI = 150
"""Of PDF pages: small print of 6 points is 12 pixels high."""
LONGEST_SIDE = 3000
"""Of a rendered page in pixels; A4 at 150 dpi has 1754. A larger page is rendered smaller."""
FURTHER_FORMATS = ("AVIF", "DIB", "JPEG2000", "PCX", "PSD", "QOI", "SGI", "SUN", "TGA")
"""Kinds that Pillow decodes by itself and that questions are not asked about as they are: these are converted."""
RULE = f"PDF pages at {DPI} dpi, at most {LONGEST_SIDE} pixels a side; EXIF orientation applied"
TWIN_ENDING = ".twin.png"
"""What ends the name of a page that was painted after another: it is nobody's document."""
LONGEST_NAME = 200
"""Bytes of the name of a file that is made; file systems hold 255, and it is first written under a longer one."""
_POINTS = 72
_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT, 3: Image.Transpose.ROTATE_180, 4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE, 6: Image.Transpose.ROTATE_270, 7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}  # fmt: skip
"""EXIF orientation -> what sets the image upright. Where questions are about an image in place, nobody does that."""
_SNIFFED = 1024
"""Bytes in which a PDF says that it is one."""


@dataclass(frozen=True)
class DocumentPage:
    """One page: its image, and where it comes from."""

    image: str
    """File name relative to the image root."""
    source: str
    """The file it is from, relative to what was given."""
    number: int
    """Which page of that file, from 1; 0 of a file that is one image."""
    width: int
    height: int

    @property
    def page_id(self) -> str:
        """``bills/may.pdf#2``; of a file that is one image its name."""
        return f"{self.source}#{self.number}" if self.number else self.source


@dataclass(frozen=True)
class FoundPages:
    """The pages below one image root, by source and number, and what could not be used."""

    root: Path
    pages: tuple[DocumentPage, ...]
    problems: tuple[tuple[str, str], ...]
    """File -> what is wrong with it, in words."""
    left_out: int
    """Files of other kinds, which nobody takes for documents."""
    converted: int
    """Pages that are images of their own making: of PDFs, of several frames, turned ones, other formats."""


def made_name(name: str, ending: str) -> str:
    """What a file made of a page is called: the page's name, cut where it is too long, and an ending."""
    room = LONGEST_NAME - len(ending)
    where, _, file = name.rpartition("/")
    kept = file if len(file.encode()) <= room else file.encode()[:room].decode(errors="ignore")
    return f"{where}/{kept}{ending}" if where else f"{kept}{ending}"


def find_pages(
    documents: str | Path | Sequence[str | Path],
    folder: Path,
    *,
    limit: int | None = None,
    gather: bool = False,
) -> FoundPages:
    """The pages of a folder (all below it), a file, or a list of both; the first ``limit`` of them.

    ``folder`` is where converted pages are written. ``gather``: all pages stand there, linked where they need nothing,
    so that something can be put beside them. A file that cannot be used is named in the result, and the others go on;
    nothing usable at all is an error.
    """
    given = [Path(documents)] if isinstance(documents, str | Path) else [Path(each) for each in documents]
    target = folder.absolute()
    base, files, left_out = _sources(given, target)
    problems: list[tuple[str, str]] = []
    opened: list[_Source] = []
    for file in files:
        name = file.relative_to(base).as_posix()
        try:
            opened.append(_source(file, check_image_name(name)))
        except SightlineError as problem:
            problems.append((printable(name), str(problem)))
    in_place = not gather and not any(source.makes for source in opened)
    pages: list[DocumentPage] = []
    with Progress("rendering pages", sum(max(1, len(source.makes)) for source in opened), "pages") as bar:
        beside = None if in_place else target
        made = (source.made(target) if source.makes else source.in_place(beside) for source in opened)
        for page in chain.from_iterable(made):
            bar.advance()
            if isinstance(page, DocumentPage):
                pages.append(page)
            else:
                problems.append(page)
            if limit is not None and len(pages) >= limit:
                break
    if not pages:
        shown = ", ".join(str(each) for each in given[:3])
        first = f"; {problems[0][0]}: {problems[0][1].rstrip('.')}" if problems else ""
        count = len(files) + left_out
        raise SightlineError(
            f"{shown}: no page to read in {count} file{'s' if count != 1 else ''}{first}; "
            "name a folder with images (JPEG, PNG, TIFF, WebP and others) or PDFs"
        )
    converted = sum(bool(page.image != page.source) for page in pages)
    return FoundPages(base if in_place else target, tuple(pages), tuple(problems), left_out, converted)


def _sources(given: Sequence[Path], target: Path) -> tuple[Path, list[Path], int]:
    """The folder that names are relative to, the files in order, and how many are of other kinds.

    Hidden files and twins are passed over, and so is what an earlier call wrote. What was named itself is taken
    whatever its ending.
    """
    if not given:
        raise SightlineError("no documents were named; name a folder, an image or a PDF")
    files: list[Path] = []
    left_out = 0
    folders = [each.absolute() if each.is_dir() else each.absolute().parent for each in given]
    # All that an audit writes stands beside its pages, unless it writes into the folder of the documents itself.
    own = target if any(folder.is_relative_to(target.parent) for folder in folders) else target.parent
    for each in given:
        try:
            if each.is_file():
                files.append(each.absolute())
                continue
            if not each.is_dir():
                raise SightlineError(f"{each} does not exist; name a folder, an image or a PDF")
        except (OSError, ValueError) as problem:
            raise SightlineError(f"{each} cannot be read: {first_line(problem)}") from None
        for file in _below(each.absolute(), own):
            if file.suffix.lower() in _endings() or file.is_dir():
                files.append(file)
            else:
                left_out += 1
    return Path(os.path.commonpath(folders)), list(dict.fromkeys(files)), left_out


def _below(folder: Path, own: Path) -> Iterator[Path]:
    """The files below a folder, and the folders that are not looked into: links, and those that cannot be opened."""
    closed: list[Path] = []
    for where, folders, names in os.walk(folder, onerror=lambda problem: closed.append(Path(problem.filename))):
        kept = (name for name in sorted(folders) if not name.startswith(".") and Path(where, name) != own)
        folders[:] = list(kept)
        plain = (name for name in sorted(names) if not name.startswith(".") and not name.endswith(TWIN_ENDING))
        yield from (Path(where, name) for name in plain)
        yield from (Path(where, name) for name in folders if Path(where, name).is_symlink())
    yield from closed


def _endings() -> set[str]:
    known = Image.registered_extensions()
    return {".pdf"} | {ending for ending, kind in known.items() if kind in (*RASTER_FORMATS, *FURTHER_FORMATS)}


# What one file holds: an image that is used as it is, or pages that have to be made.

Made = Callable[[], Image.Image]


@dataclass(frozen=True)
class _Source:
    file: Path
    name: str
    makes: tuple[Made, ...] = ()
    """What renders each page; empty for an image that needs nothing."""
    size: tuple[int, int] = (0, 0)

    def in_place(self, target: Path | None) -> Iterator[DocumentPage | tuple[str, str]]:
        """The image itself; where others are converted it is linked, or else copied, to stand beside them."""
        if target is not None:
            linked = target / self.name
            if not (linked.exists() and file_digest(linked) == file_digest(self.file)):
                linked.unlink(missing_ok=True)
                make_folder(linked.parent)
                try:
                    os.link(self.file.resolve(), linked)  # of a link the file: a link would lead out of the pages
                except OSError:  # another disk
                    shutil.copyfile(self.file, linked)
        yield DocumentPage(self.name, self.name, 0, *self.size)

    def made(self, target: Path) -> Iterator[DocumentPage | tuple[str, str]]:
        """The pages, rendered unless they are there already."""
        tag = sha256(f"{file_digest(self.file)} {RULE}".encode()).hexdigest()[:10]
        for number, make in enumerate(self.makes, start=1):
            name = made_name(self.name, f"-{tag}-p{number:03d}.png")
            try:
                if not (target / name).is_file():
                    write_whole(target / name, stored_as(make(), "PNG", compress_level=3), make_parent=True)
                yield DocumentPage(name, self.name, number, *image_size(target / name))
            except Exception as problem:  # decoders raise whatever they like on damaged pages
                called = f"{self.name}#{number}" if len(self.makes) > 1 else self.name
                yield called, f"cannot be rendered: {first_line(problem)}"


def _source(file: Path, name: str) -> _Source:
    if not is_storable(name) or any(sign < " " for sign in name):
        raise SightlineError("has a name that is not UTF-8, or with a line break; rename it")
    try:
        if file.is_symlink() and file.is_dir():
            raise SightlineError("is a link to a folder, which is not followed; name that folder too")
        if file.is_dir():
            os.listdir(file)  # says why nobody could look into it
        if file.exists() and not file.is_file():
            raise SightlineError("is no file, whatever its ending says")
        with file.open("rb") as stream:
            start = stream.read(_SNIFFED)
    except OSError as problem:
        raise SightlineError(f"cannot be read: {problem.strerror}") from None
    if not start:
        raise SightlineError("is empty")
    if b"%PDF-" in start:
        return _Source(file, name, _pdf_pages(file))
    if file.suffix.lower() == ".pdf":
        raise SightlineError("is no PDF, whatever its ending says")
    return _image_source(file, name)


def _image_source(file: Path, name: str) -> _Source:
    stored, usual = _opened(file)
    with stored:
        _refuse_large(stored.size)
        if not has_known_white(stored):
            raise SightlineError(f"does not say which value of mode {stored.mode} is white; save it with 8 or 16 bits")
        try:
            frames = page_frames(stored)
            turned = stored.getexif().get(_ORIENTATION, 1) in _TURNS
        except Exception as problem:  # of a file that is cut off between its pages
            raise SightlineError(f"cannot be read: {first_line(problem)}") from None
        if usual and len(frames) == 1 and not turned:
            return _Source(file, name, size=stored.size)
    return _Source(file, name, tuple(partial(_frame, file, frame) for frame in frames))


def _opened(file: Path) -> tuple[Image.Image, bool]:
    """The image with its header read, and whether it is of a kind that questions are asked about as it is."""
    for formats, usual in ((RASTER_FORMATS, True), (FURTHER_FORMATS, False)):
        try:
            return Image.open(file, formats=formats), usual
        except UnidentifiedImageError:
            continue
        except Exception as problem:  # decoders raise whatever they like on damaged files
            raise SightlineError(f"cannot be read: {first_line(problem)}") from None
    raise SightlineError("cannot be read as an image; open it in a viewer and save it as PNG or PDF")


def _frame(file: Path, frame: int) -> Image.Image:
    stored, _ = _opened(file)
    with stored:
        stored.seek(frame)
        _refuse_large(stored.size)
        turn = _TURNS.get(stored.getexif().get(_ORIENTATION, 1))
        upright = to_rgb(stored)
        return upright if turn is None else upright.transpose(turn)


def _refuse_large(size: tuple[int, int]) -> None:
    width, height = size
    if width * height > MAX_PIXELS or max(size) > MAX_RATIO * min(size):
        raise SightlineError(
            f"has {width} x {height} pixels; the limit is {MAX_PIXELS}, and {MAX_RATIO} between the sides"
        )


def _pdf_pages(file: Path) -> tuple[Made, ...]:
    import pypdfium2

    def opened() -> pypdfium2.PdfDocument:
        try:
            document = pypdfium2.PdfDocument(file)
        except pypdfium2.PdfiumError as problem:
            if problem.err_code == pypdfium2.raw.FPDF_ERR_PASSWORD:
                raise SightlineError("is encrypted; save a copy without the password") from None
            raise SightlineError(f"cannot be read as a PDF: {first_line(problem)}") from None
        document.init_forms()  # what was filled in is part of the page
        return document

    def page(number: int) -> Image.Image:
        with opened() as document:
            sheet = document[number]
            scale = min(DPI / _POINTS, LONGEST_SIDE / max(sheet.get_size()))
            rendered: Image.Image = sheet.render(scale=scale).to_pil()
            return rendered.convert("RGB")

    with opened() as document:
        count = len(document)
    if not count:
        raise SightlineError("has no pages")
    return tuple(partial(page, number) for number in range(count))
