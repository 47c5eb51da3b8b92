"""One case: a probe with its image, and what some arms kept of it, from the few files that hold them."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from PIL import Image

from sightline.core.probe import ORIGINAL
from sightline.errors import SightlineError
from sightline.geometry.marks import BLACK, marks_of, veil_of
from sightline.probes.images import image_digest, stored_as
from sightline.rows.picture import lost_texts
from sightline.rows.reader import read_row
from sightline.serving.server import file_inside, picture_bytes
from sightline.store.folder import RunFolder
from sightline.store.shard_files import Owner, ShardFile, ShardPiece
from sightline.view.rows import HEAVY, ProbeBook, Rows, layout_of

KEPT_TABLES = 96
"""Files whose image records stay in memory: the next case is mostly of the same shard."""
OF_PROBE = ("question", "label", "target_text", "source_text", "answers", "task", "kind", "image", "image_id")
SHOWN = (
    "arm", "plain_arm", "selector", "regime", "budget", "intervention", "view", "label", "kind", "predicted", "correct",
    "margin", "score", "ecr", "anchor_ecr", "visible", "legibility", "center_recall", "lpp", "n_tokens", "k_tokens",
    "keep", "policy", "image_key", "scores_rule", "outcome", "swapped_text", "swapped_box",
)  # fmt: skip
"""Columns of a row that a case shows, as far as the run has them."""
HITS = "text_hits"
"""Column of a transcription with the share of each text's words that were written, and from where on a text counts."""
THUMBNAIL = (160, 120)
"""Pixels that a picture in a list of rows fits into, sharp on a screen of twice the usual density."""


@dataclass
class CaseReader:
    """Cases of one run folder."""

    folder: Path
    probes: ProbeBook
    _images: dict[str, tuple[ShardFile, int]] = field(init=False, default_factory=dict)
    _read: set[ShardFile] = field(init=False, default_factory=set)

    @property
    def _run(self) -> RunFolder:
        """As it is now: it may be written anew while it is looked at."""
        return RunFolder(self.folder)

    def case(self, rows: Rows, probe: str, view: str | None, arms: Sequence[str]) -> dict[str, Any]:
        """A probe with every arm's answer, and for the named arms what they kept: bits and cells as base64."""
        indices = rows.of_probe(probe)
        if not len(indices):
            raise SightlineError(f"{rows.manifest.get('model', 'the run')} has no rows of probe {probe!r}")
        columns = [name for name in (*SHOWN, HITS) if name in rows.table.column_names]
        records = rows.records(indices, columns)
        views = list(dict.fromkeys(record["view"] for record in records))
        own = str(view if view in views else views[0])
        asked = self.probes.record(probe, own)
        for record in records:
            if hits := record.pop(HITS, None):
                record["texts"] = len(hits)
                record["lost"] = lost_texts(hits, asked)
        panels = [
            self._panel(rows, int(index), record)
            for index, record in zip(indices, records, strict=True)
            if record["arm"] in arms and (record["intervention"] != "none" or record["view"] == own)
        ]
        keys = dict.fromkeys(panel["image_key"] for panel in panels) or {records[0]["image_key"]: None}
        return {
            "probe": probe,
            "view": own,
            "views": views,
            **{name: asked.get(name) for name in OF_PROBE if asked.get(name) not in (None, "", [], ())},
            "regions": _regions(asked),
            "boxes": [list(box) for box in asked.get("boxes") or ()],
            "answers_of_arms": [record for record in records if record["view"] == own or record["arm"] in arms],
            "panels": sorted(panels, key=lambda panel: list(arms).index(panel["arm"])),
            "images": {key: self._image(key) for key in keys},
        }

    def _panel(self, rows: Rows, index: int, record: dict[str, Any]) -> dict[str, Any]:
        heavy = self.heavy(rows, index)
        return {**record, **{name: _base64(heavy.get(name)) for name in HEAVY}}

    def keepers(self, rows: Rows, probe: str, key: str) -> dict[str, Any]:
        """Of every arm that looked at an image about a probe, which tokens it kept."""
        found = []
        for index in rows.of_probe(probe):
            record = rows.records([int(index)], ["arm", "image_key"])[0]
            if record["image_key"] == key:
                found.append({"arm": record["arm"], "kept_mask": _base64(self.heavy(rows, int(index))["kept_mask"])})
        return {"arms": found}

    def heavy(self, rows: Rows, index: int) -> dict[str, Any]:
        """The bytes of one row, as far as the run has them."""
        file, at = rows.file_of(index)
        return read_row(file.piece.file, self._run.owner(file.arm), at, HEAVY)

    def image(self, key: str) -> dict[str, Any]:
        """The whole record of an image."""
        if key not in self._images:
            self._look_for_images()
        if key not in self._images:
            raise SightlineError(f"{self.folder.name} has no image record of {key!r}; it may still be written")
        file, at = self._images[key]
        return dict(_image_table(self._run.owner(), file).slice(at, 1).to_pylist()[0])

    def _look_for_images(self) -> None:
        for file in self._run.files_of_images():
            if file not in self._read:
                for at, key in enumerate(_image_table(self._run.owner(), file).column("image_key").to_pylist()):
                    self._images.setdefault(key, (file, at))
                self._read.add(file)

    def _image(self, key: str) -> dict[str, Any]:
        record = self.image(key)
        return {
            "image": record["image"],
            "width": record["width"],
            "height": record["height"],
            "layout": layout_of(record),
            "cells": _base64(record["cells"]),
            "details": [list(box) for box in record.get("detail_boxes") or ()],
            "veil": _veil(record["preview"] or b""),
        }


def _regions(probe: dict[str, Any]) -> list[dict[str, Any]]:
    regions = probe.get("regions") or ()
    marks = marks_of(probe.get("roles") or (), len(regions))
    return [
        {"box": list(box), "letter": mark.letter, "colour": mark.colour, "words": mark.words}
        for box, mark in zip(regions, marks, strict=True)
    ]


@lru_cache(maxsize=4096)
def _veil(preview: bytes) -> str:
    try:
        with Image.open(io.BytesIO(preview)) as image:
            return veil_of(image)
    except (OSError, ValueError, Image.DecompressionBombError):
        return BLACK


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


@lru_cache(maxsize=KEPT_TABLES)
def _image_table(owner: Owner, file: ShardFile) -> pa.Table:
    return owner.read(ShardPiece(file, file.first, file.last))


# The bytes that a browser is given of an image: the file itself where it can show it as it was audited.

FILE, PREVIEW = "file", "preview"


def shown_source(record: dict[str, Any], view: str, images: Path | None) -> str:
    """Whether the file itself is shown; a view that an intervention made, or a smaller size, is in no file."""
    if images is None or view != ORIGINAL or "#fit=" in record["image_key"]:
        return PREVIEW
    try:
        file = file_inside(images, record["image"])
    except SightlineError:
        return PREVIEW
    return FILE if _digest(file, file.stat().st_mtime_ns) == record["digest"] else PREVIEW


def shown_bytes(record: dict[str, Any], view: str, images: Path | None) -> tuple[bytes, str]:
    """The image and its media type."""
    if images is None or shown_source(record, view, images) == PREVIEW:
        return bytes(record["preview"] or b""), "image/jpeg"
    return picture_bytes(images, record["image"])


@lru_cache(maxsize=4096)
def small_picture(preview: bytes) -> bytes:
    """A preview as a list of rows shows it."""
    with Image.open(io.BytesIO(preview)) as image:
        image.draft("RGB", THUMBNAIL)
        small = image.convert("RGB")
    small.thumbnail(THUMBNAIL)
    return stored_as(small, "JPEG", quality=70)


@lru_cache(maxsize=4096)
def _digest(file: Path, changed: int) -> str:
    return image_digest(file)
