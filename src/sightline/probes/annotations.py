"""An annotation file in any registered format, read into regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from sightline.errors import SightlineError
from sightline.probes.formats.base import FORMATS, Profile, configured
from sightline.probes.json_lines import file_digest, open_text
from sightline.probes.region_records import Ingest

START = 65_536
"""Characters of a file that formats are shown to recognise it by."""


def detect_format(path: str | Path) -> str:
    """The name of the one format that recognises the beginning of the file."""
    with open_text(path) as stream:
        start = stream.read(START)
    found = [name for name, kind in FORMATS.items() if kind.recognises(start)]
    if len(found) == 1:
        return found[0]
    if found:
        raise SightlineError(f"{path} could be {' or '.join(found)}; say which with --format")
    raise SightlineError(f"{path} is in no known annotation format ({', '.join(FORMATS)}); --format reads it as one")


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
) -> Ingest:
    """Reads annotations of any format and notes where the records come from.

    Parameters
    ----------
    options: those of the format, by name.
    file_format: a registered name; None looks at the file.
    profile: ``artifact`` reads as the paper's artifact does, with the options that the format sets for it.
    images: the folder to look sizes up in, for pixel records that do not say theirs.
    """
    name = file_format or detect_format(path)
    reader = configured(FORMATS.get(name), options, profile)
    ingest = reader.read(Path(path), None if images is None else Path(images))
    source: dict[str, Any] = {"annotations": Path(path).name, "digest": file_digest(path), "format": name}
    source |= {option: value for option, value in asdict(reader).items() if value is not None}
    return replace(ingest, source=source | {"images": ingest.counts.images, "boxes": ingest.counts.boxes})
