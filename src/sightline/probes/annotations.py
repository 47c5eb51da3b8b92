"""Annotations in any registered format, a file or a folder of files, read into regions."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.probes.formats.base import FORMATS, START, Profile, configured, options_of
from sightline.probes.json_lines import file_digest
from sightline.probes.raw_text import start_of
from sightline.probes.region_records import Ingest


def detect_format(path: str | Path) -> str:
    """The name of the one format that recognises the beginning of the file, or of a folder's first file.

    A format that yields, because it is told by little (a table, any object with words), counts only alone.
    """
    if Path(path).is_dir():
        return _detect_in_folder(Path(path))
    found = _recognising(Path(path))
    if len(found) == 1:
        return found[0]
    if found:
        raise SightlineError(f"{path} could be {' or '.join(found)}; say which with --format")
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
    known = ", ".join(readers)
    raise SightlineError(f"{folder}: no file in this folder is in a format of which folders are read ({known})")


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
    path: str | Path,
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
    path: a file, or a folder of files where the format has one per page.
    options: those of the format, by name.
    file_format: a registered name; None looks at the file.
    profile: ``artifact`` reads as the paper's artifact does, with the options that the format sets for it.
    images: the folder to look sizes up in, for pixel records that do not say theirs.
    lines: whole lines instead of words, from a format that has both (its option ``level``).
    """
    path = Path(path)
    name = file_format or detect_format(path)
    kind = FORMATS.get(name)
    if lines and "level" in options_of(kind):
        options = {"level": "lines", **options}
    reader = configured(kind, options, profile)
    files = reader.files(path)
    ingest = reader.read(path, None if images is None else Path(images))
    source: dict[str, Any] = {"annotations": path.name, "digest": _digest(files, path), "format": name}
    for option, value in asdict(reader).items():
        source |= dict(_noted(option, value))
    return replace(ingest, source=source | {"images": ingest.counts.images, "boxes": ingest.counts.boxes})


def _noted(option: str, value: Any) -> Iterator[tuple[str, Any]]:
    """An option as it enters the source; a further file by its name and digest."""
    if isinstance(value, Path):
        yield option, value.name
        yield f"{option}_digest", file_digest(value)
    elif value is not None:
        yield option, value


def _digest(files: list[Path], path: Path) -> str:
    """Of the file's bytes; of a folder, over one line per file with its digest and name."""
    if not path.is_dir():
        return file_digest(path)
    lines = (f"{file_digest(file)}  {file.relative_to(path).as_posix()}\n" for file in files)
    return f"sha256:{hashlib.sha256(''.join(lines).encode()).hexdigest()}"
