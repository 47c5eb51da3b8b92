"""One run that is being looked at: its rows, probes, pictures and numbers, as fresh as its folder."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

from sightline.errors import SightlineError
from sightline.store import load_run
from sightline.view.asked_rows import AskedRows
from sightline.view.case_reader import CaseReader
from sightline.view.first_numbers import first_numbers
from sightline.view.intervals_beside import IntervalsBeside
from sightline.view.probe_book import ProbeBook
from sightline.view.row_index import RowIndex

LOOK_EVERY_S = 2.0
"""How often a folder is looked at for new files, at most, while pages ask."""


@dataclass
class ViewedRun:
    """A run folder and the folder of its images, if there is one."""

    folder: Path
    name: str
    images: Path | None
    index: RowIndex = field(init=False)
    reader: CaseReader = field(init=False)
    intervals: IntervalsBeside = field(init=False)
    _asked: AskedRows = field(init=False)
    _numbers: tuple[int, dict[str, Any]] | None = field(init=False, default=None)
    _joined: tuple[int, dict[str, str]] | None = field(init=False, default=None)
    _looked: float = field(init=False, default=0.0)
    _lock: threading.RLock = field(init=False, default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.index = RowIndex(self.folder)
        self.reader = CaseReader(self.folder, ProbeBook(self.folder))
        self.intervals = IntervalsBeside(self.folder)
        self._asked = AskedRows(self.index.rows, self.reader.probes)
        self._looked = monotonic()
        self.reader.probes.text("", "question")  # read now, not while somebody waits for the first case

    def asked(self) -> AskedRows:
        """The rows of this moment."""
        with self._lock:
            if monotonic() - self._looked > LOOK_EVERY_S:
                self._looked = monotonic()
                if self.index.refresh():
                    self._asked = AskedRows(self.index.rows, self.reader.probes)
            return self._asked

    def numbers(self) -> dict[str, Any]:
        """The main table and the frontier without intervals."""
        rows = self.asked().rows
        with self._lock:
            if self._numbers is None or self._numbers[0] != rows.version:
                self._numbers = rows.version, first_numbers(rows, self._same(rows.version))
            return self._numbers[1]

    def _same(self, version: int) -> dict[str, str]:
        """Images that count as one with another, as rows of this version know them; none before there are any."""
        with self._lock:
            if self._joined is None or self._joined[0] != version:
                try:
                    self._joined = version, load_run(self.folder).same_images
                except SightlineError:
                    self._joined = version, {}
            return self._joined[1]

    def facts(self) -> dict[str, Any]:
        """What the pages say of a run."""
        asked = self.asked()
        rows, manifest = asked.rows, asked.rows.manifest
        return {
            "name": self.name,
            "model": str(manifest.get("model")),
            "created": str(manifest.get("created", ""))[:10],
            "device": f"{manifest.get('device')}, {manifest.get('dtype')}",
            "version": rows.version,
            "rows": rows.count,
            "probes": len(rows.codes("probe_id")[1]),
            "images": len(set(rows.codes("image_id")[1]).difference(self._same(rows.version))),
            "arms": rows.arms,
            "missing": rows.missing,
            "shards": int(manifest.get("shards", 0)) * len(rows.arms),
            "sharp": self.images is not None,
            "probe_digest": str(manifest.get("probe_digest")),
            "columns": [{"name": name, "doc": doc, "kind": _kind(asked, name)} for name, doc in asked.docs.items()],
        }


def _kind(asked: AskedRows, name: str) -> str:
    """Whether a column holds texts, truths, counts or other numbers."""
    if name not in asked.rows.table.column_names:
        return {"margin_full": "number", "ecr_full": "number", "correct_full": "truth"}.get(name, "text")
    kind = str(asked.rows.table.schema.field(name).type)
    if kind.startswith("dictionary"):
        return "text"
    return "truth" if kind == "bool" else "count" if kind.startswith("int") else "number"


def viewed_runs(folders: list[Path], images: Path | None) -> list[ViewedRun]:
    """The runs under names that tell them apart; images of each in the folder named, or where the run found them."""
    if images is not None and not images.is_dir():
        raise SightlineError(f"--images {images} is no folder; name the one that image names are relative to")
    names = [folder.resolve().name for folder in folders]
    for number, name in enumerate(names):
        if names.count(name) > 1:
            names[number] = f"{name} ({number + 1})"
    return [
        ViewedRun(folder, name, images or recorded_images(folder)) for folder, name in zip(folders, names, strict=True)
    ]


def recorded_images(folder: Path) -> Path | None:
    """The folder that a run read its images from, where it is still there."""
    from sightline.store.folder import RunFolder

    said = RunFolder(folder).manifest().get("images")
    return Path(said) if said and Path(said).is_dir() else None
