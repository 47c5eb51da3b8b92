"""One run that is being looked at: its rows, probes, pictures and numbers, as fresh as its folder."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sightline.errors import SightlineError
from sightline.rows.run import load_run
from sightline.view.cases import CaseReader
from sightline.view.overview import IN_WORDS, YES_OR_NO, BackgroundIntervals, table_without_intervals
from sightline.view.query import AskedRows
from sightline.view.rows import ProbeBook, RowIndex

LOOK_EVERY_S = 2.0
"""How often a folder is looked at for new files, at most, while pages ask."""
MENUS = ("arm", "view", "kind", "outcome", "label")
"""Columns of which the page offers a menu, where they have several values and no more than ``MOST_CHOICES``."""
MOST_CHOICES = 80


@dataclass
class ViewedRun:
    """A run folder and the folder of its images, if there is one."""

    folder: Path
    name: str
    images: Path | None
    index: RowIndex = field(init=False)
    reader: CaseReader = field(init=False)
    intervals: BackgroundIntervals = field(init=False)
    _asked: AskedRows = field(init=False)
    _numbers: tuple[int, dict[str, Any]] | None = field(init=False, default=None)
    _joined: tuple[int, dict[str, str]] | None = field(init=False, default=None)
    _looked: float = field(init=False, default=0.0)
    _lock: threading.RLock = field(init=False, default_factory=threading.RLock)

    def __post_init__(self) -> None:
        self.index = RowIndex(self.folder)
        self.reader = CaseReader(self.folder, ProbeBook(self.folder))
        self.intervals = BackgroundIntervals(self.folder)
        self._asked = AskedRows(self.index.rows, self.reader.probes)
        self._looked = monotonic()
        self.reader.probes.text("", "", "question")  # read now, not while somebody waits for the first case

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
                self._numbers = rows.version, table_without_intervals(rows, self._same(rows.version))
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
            "menus": {name: values for name in MENUS if len(values := _choices(asked, name)) > 1},
            "chips": {words: query for words, (needed, query) in _chips(asked).items() if needed in asked.names},
        }


def _choices(asked: AskedRows, name: str) -> list[str]:
    """The values of a column of few texts; arms in the order of the run."""
    if name not in asked.rows.table.column_names:
        return []
    found = {value for value in asked.rows.codes(name)[1] if value}
    known = [arm for arm in asked.rows.arms if arm in found] if name == "arm" else sorted(found)
    return known if len(known) <= MOST_CHOICES else []


def _chips(asked: AskedRows) -> dict[str, tuple[str, str]]:
    """What is looked for most: by the words of its button the column that it needs, and its query."""
    queries = IN_WORDS if "score" in asked.names else YES_OR_NO
    return {
        "right": ("correct", "correct"),
        "wrong": ("correct", "not correct"),
        "unsupported": ("ecr", queries["unsupported"][0]),
        "swapped": ("swapped", "swapped"),
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


# Two arms, of one run or of two, on the probes that both answered: who is right where.

OUTCOMES = {
    "only_first": "only the first is right",
    "only_second": "only the second is right",
    "both": "both right",
    "neither": "neither right",
    "other_answer": "different answers",
}


def paired_rows(first: AskedRows, arm: str, second: AskedRows, other: str) -> tuple[NDArray[np.int64], ...]:
    """Places in both runs of the rows about the same probe and view, in the order of the first."""
    indices = _of_arm(first, arm)
    there = _of_arm(second, other)
    known = dict(zip(_asked(second, there), there.tolist(), strict=True))
    pairs = [
        (index, known[key]) for key, index in zip(_asked(first, indices), indices.tolist(), strict=True) if key in known
    ]
    if not pairs:
        raise SightlineError(f"{arm} and {other} have no probe in common; compare runs over the same probes")
    both = np.array(pairs, dtype=np.int64)
    return both[:, 0], both[:, 1]


def _of_arm(rows: AskedRows, arm: str) -> NDArray[np.int64]:
    found = np.flatnonzero(rows.rows.codes("arm")[0] == rows.rows.code("arm", arm))
    if not len(found):
        raise SightlineError(f"no row of arm {arm!r}; it has {', '.join(rows.rows.arms[:8])}")
    return found


def _asked(rows: AskedRows, indices: NDArray[np.int64]) -> list[tuple[str, str]]:
    probes, names = rows.rows.codes("probe_id")
    views, called = rows.rows.codes("view")
    return [(names[probe], called[view]) for probe, view in zip(probes[indices], views[indices], strict=True)]


def compared(
    first: AskedRows, arm: str, second: AskedRows, other: str, outcome: str, offset: int, limit: int
) -> dict[str, Any]:
    """Counts of who is right, and the pairs of one outcome, the most different margins first."""
    a, b = paired_rows(first, arm, second, other)
    sides = ((first, a), (second, b))
    right = [rows.column("correct").fill_null(False).to_numpy(zero_copy_only=False)[indices] for rows, indices in sides]
    said = [_texts(rows, indices, "predicted") for rows, indices in sides]
    masks = {
        "only_first": right[0] & ~right[1],
        "only_second": ~right[0] & right[1],
        "both": right[0] & right[1],
        "neither": ~right[0] & ~right[1],
        "other_answer": np.array([one != two for one, two in zip(*said, strict=True)]),
    }
    if outcome not in masks:
        raise SightlineError(f"no outcome {outcome!r}; choose one of {', '.join(masks)}")
    margins = [_numbers(rows, indices, "margin") for rows, indices in sides]
    coverage = [_numbers(rows, indices, "ecr") for rows, indices in sides]
    change = np.abs(np.nan_to_num(margins[1] - margins[0]))
    chosen = np.flatnonzero(masks[outcome])
    chosen = chosen[np.argsort(-change[chosen], kind="stable")]
    shown = chosen[offset : offset + limit]
    columns = [name for name in ("probe_id", "view", "label", "question") if name in first.names]
    told = [name for name in ("predicted", "correct", "margin", "score", "ecr") if name in first.names]
    records = first.records(a[shown], columns)
    answers = [rows.records(indices[shown], [name for name in told if name in rows.names]) for rows, indices in sides]
    return {
        "pairs": len(a),
        "counts": {name: int(mask.sum()) for name, mask in masks.items()},
        "accuracy": [float(one.mean()) for one in right],
        "coverage": [float(np.nanmean(one)) if np.isfinite(one).any() else None for one in coverage],
        "outcome": outcome,
        "total": len(chosen),
        "rows": [{**record, "first": one, "second": two} for record, one, two in zip(records, *answers, strict=True)],
    }


def _texts(rows: AskedRows, indices: NDArray[np.int64], name: str) -> list[Any]:
    value = rows.column(name)
    return [value.texts[code] if code >= 0 else None for code in value.codes[indices]]


def _numbers(rows: AskedRows, indices: NDArray[np.int64], name: str) -> NDArray[np.float64]:
    if name not in rows.names:
        return np.full(len(indices), np.nan)
    column: NDArray[np.float64] = rows.column(name).to_numpy(zero_copy_only=False)[indices]
    return column
