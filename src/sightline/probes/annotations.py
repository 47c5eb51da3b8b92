"""Annotations in any registered format, a file or a folder of files, read into regions."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.places.listing import Place
from sightline.probes.data_rows import file_digest, named_columns, start_of
from sightline.probes.formats.base import FORMATS, START, Profile, configured, options_of
from sightline.probes.regions import ImageRegions, Ingest


def detect_format(path: str | Path) -> str:
    """The name of the one format that recognises the beginning of the file, or of a folder's first file.

    A format that yields, because it is told by little (a table, any object with words), counts only alone.
    """
    if os.path.isdir(path):  # False too for a name that no folder can have
        return _detect_in_folder(Path(path))
    found = _recognising(Path(path))
    if len(found) == 1:
        return found[0]
    if found:
        raise SightlineError(f"{path} could be {' or '.join(found)}; say which with --format")
    if columns := named_columns(start_of(path, START)):
        raise SightlineError(
            f"{path} is a table with the columns {', '.join(columns)}; questions need image, question and answers, "
            "words need image, text and x1, y1, x2, y2: rename what is meant, 'sightline probes formats' lists the rest"
        )
    raise SightlineError(f"{path} is in no known annotation format ({', '.join(FORMATS)}); --format reads it as one")


def _recognising(file: Path) -> list[str]:
    start = start_of(file, START)
    found = {name: kind for name, kind in FORMATS.items() if kind.recognises(start)}
    return [name for name, kind in found.items() if not kind.yields] or list(found)


def _detect_in_folder(folder: Path) -> str:
    readers = {name: kind for name, kind in FORMATS.items() if kind.suffixes}
    for file in sorted({file for kind in readers.values() for file in kind.candidates(folder)}):
        found = [name for name in _recognising(file) if name in readers]
        if len(found) == 1:
            return found[0]
    raise SightlineError(
        f"{folder}: no file in this folder is in a format of which folders are read ({', '.join(readers)}); plain "
        "images and PDFs are read by --ocr rapidocr, or audited at once by sightline audit MODEL FOLDER"
    )


def load_regions(
    path: str | Path,
    *,
    file_format: str | None = None,
    profile: Profile = "paper",
    images: str | Path | None = None,
    **options: Any,
) -> Ingest:
    """``read_annotations`` with the options of the format as keywords; None counts as not given."""
    given = {name: value for name, value in options.items() if value is not None}
    return read_annotations(path, given, file_format=file_format, profile=profile, images=images)


def read_annotations(
    path: str | Path | Sequence[Path],
    options: Mapping[str, Any],
    *,
    file_format: str | None = None,
    profile: Profile = "paper",
    images: str | Path | None = None,
    lines: bool = False,
) -> Ingest:
    """Reads annotations of any format and notes where the records come from.

    Parameters
    ----------
    path: a file, or a folder of files where the format has one per page; or several files, where data comes in shards.
    options: those of the format, by name.
    file_format: a registered name; None looks at the file.
    profile: ``artifact`` reads as the paper's artifact does, with the options that the format sets for it.
    images: the folder to look sizes up in, for pixel records that do not say theirs.
    lines: whole lines instead of words, from a format that has both (its option ``level``).
    """
    paths = [Path(path)] if isinstance(path, str | Path) else list(path)
    name = file_format or detect_format(paths[0])
    kind = FORMATS.get(name)
    if lines and "level" in options_of(kind):
        options = {"level": "lines", **options}
    reader = configured(kind, options, profile)
    root = None if images is None else Path(images)
    if len(paths) == 1:
        files = reader.files(paths[0])
        ingest = reader.read(paths[0], root)
    else:
        files = [file for each in paths for file in reader.files(each)]
        ingest = reader.read_shards(files, root)
    names = [each.name for each in paths]
    source: dict[str, Any] = {
        "annotations": names[0] if len(names) == 1 else names,
        "digest": _digest(files, paths),
        "format": name,
    }
    for option, value in asdict(reader).items():
        if isinstance(value, Path):  # a further file, by its name and digest
            source |= {option: value.name, f"{option}_digest": file_digest(value)}
        elif value is not None:
            source[option] = value
    return replace(ingest, source=source | {"images": ingest.counts.images, "boxes": ingest.counts.boxes})


def _digest(files: list[Path], paths: list[Path]) -> str:
    """Of the file's bytes; of a folder or several files, over one line per file with its digest and name."""
    if len(paths) == 1 and not paths[0].is_dir():
        return file_digest(paths[0])
    folder = paths[0] if len(paths) == 1 else None
    names = (file.name if folder is None else file.relative_to(folder).as_posix() for file in files)
    lines = (f"{file_digest(file)}  {name}\n" for file, name in zip(files, names, strict=True))
    return f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"


def check_image_sizes(
    root: str | Place,
    records: Iterable[ImageRegions],
    *,
    progress: Callable[[Iterable[ImageRegions]], Iterable[ImageRegions]] = iter,
) -> None:
    """Refuses a record whose image is missing, unreadable, or of another size than its annotation says."""
    from sightline.probes.images import size_from_header

    for record in progress(records):
        size = size_from_header(root, record.image)
        stated = (record.width, record.height)
        if None in stated or size == stated:
            continue
        hint = " (sides swapped: was the image rotated?)" if size == stated[::-1] else ""
        raise SightlineError(
            f"image {record.image!r} is {size[0]} x {size[1]} pixels, "
            f"its annotation says {stated[0]} x {stated[1]}{hint}; mend one of the two or pass --no-check-images"
        )
