"""The promises of an annotation format, on a file of it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from sightline.contract.promise import as_promises, promise
from sightline.errors import SightlineError
from sightline.probes.formats.base import START, Format
from sightline.probes.image_name import check_image_name
from sightline.probes.raw_text import start_of
from sightline.probes.region_records import ImageRegions, is_storable


def check_format(reader: Format, path: Path | str, images: Path | str | None = None) -> None:
    """Raises an ``AssertionError`` unless the format reads ``path``, a good file of it, as probe building relies on.

    It recognises the file; it reads the same twice; every box has an area and lies within the image, every text can be
    stored, every image has a name below the image folder and an identifier of its own; the counts are those of the
    records; of a file that ends in the middle it either makes sense or says in one sentence what is wrong.
    """
    path, folder = Path(path), None if images is None else Path(images)
    name = reader.name
    promise(bool(name) and "\n" not in reader.description, f"{name}: a format needs a name and a line of description")
    for file in reader.files(path):
        promise(reader.recognises(start_of(file, START)), f"{name} does not recognise {file.name}")
    with as_promises():
        ingest = reader.read(path, folder)
        promise(reader.read(path, folder) == ingest, f"{name} reads {path.name} otherwise the second time")
    promise(bool(ingest.records or ingest.probes), f"{name} finds nothing in {path.name}")
    for record in ingest.records:
        _check_record(record, name)
    ids = [record.record_id for record in ingest.records]
    promise(len(set(ids)) == len(ids), f"{name} gives two images one identifier")
    found = (len(ingest.records), sum(len(record.words) for record in ingest.records))
    counted = (ingest.counts.images, ingest.counts.boxes)
    promise(found == counted, f"{name} counts {counted} images and boxes where its records hold {found}")
    if path.is_file():
        _check_cut_off(reader, path, folder)


def _check_record(record: ImageRegions, name: str) -> None:
    with as_promises():
        check_image_name(record.image)
    for word in record.words:
        x1, y1, x2, y2 = word.box
        inside = 0.0 <= x1 < x2 <= 1.0 and 0.0 <= y1 < y2 <= 1.0
        promise(
            inside, f"{name}: {word.text!r} of {record.image} has the box {word.box}, which is none within the image"
        )
        promise(is_storable(word.text), f"{name}: a text of {record.image} cannot be stored as UTF-8")


def _check_cut_off(reader: Format, path: Path, images: Path | None) -> None:
    """The beginning of a file, as a download that broke off leaves it."""
    whole = path.read_bytes()
    with tempfile.TemporaryDirectory() as folder:
        begun = Path(folder) / path.name
        for quarters in (1, 2, 3):
            begun.write_bytes(whole[: len(whole) * quarters // 4])
            try:
                reader.read(begun, images)
            except SightlineError:
                continue
            except Exception as error:
                raise AssertionError(
                    f"{reader.name} answers a file that ends in the middle with {type(error).__name__} ({error}); "
                    "raise a SightlineError that says what is wrong"
                ) from error
