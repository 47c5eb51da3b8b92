"""The rows of a run in memory without their masks: what is filtered, sorted and counted while somebody looks on.

A run that is still being written grows: ``refresh`` reads the files that have appeared since, and nothing again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sightline.core.probe import ORIGINAL
from sightline.errors import SightlineError
from sightline.rows.reader import read_coded
from sightline.store.folder import PROBES, RunFolder
from sightline.store.shard_files import ShardPiece, pieces

HEAVY = ("kept_mask", "lineage_mask", "scores")
"""Columns of bytes, which are read row by row where a picture needs them."""
UNASKED = ("versions", "weight_digest", "k_layers")
"""Columns that say the same in every row, or that no question is asked about."""
READERS = 4


@dataclass(frozen=True)
class RowFile:
    """Rows of an arm that stand together in one file, in the order of the run."""

    arm: str
    piece: ShardPiece
    start: int
    """Its first row within the file."""
    count: int

    @property
    def path(self) -> Path:
        return self.piece.file.path


@dataclass(frozen=True)
class Rows:
    """All rows that were there at some moment. A new moment has a new one, so that nobody sees half of a change."""

    version: int
    manifest: dict[str, Any]
    files: list[RowFile]
    table: pa.Table
    """Every column in one piece, strings by code."""

    @property
    def arms(self) -> list[str]:
        return list(self.manifest["arms"])

    @property
    def count(self) -> int:
        return int(self.table.num_rows)

    @property
    def missing(self) -> int:
        """Shards under an arm that are still to be computed."""
        there = sum(file.piece.last - file.piece.first + 1 for file in self.files)
        return max(0, len(self.arms) * int(self.manifest.get("shards", 0)) - there)

    @cached_property
    def docs(self) -> dict[str, str]:
        """What every column means, as the files say it."""
        found = {}
        for each in self.table.schema:
            words = (each.metadata or {}).get(b"doc", b"").decode()
            found[each.name] = words
        return found

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """(F + 1,) the first row of every file, and the number of rows."""
        return np.concatenate([[0], np.cumsum([file.count for file in self.files])]).astype(np.int64)

    def file_of(self, row: int) -> tuple[RowFile, int]:
        """The file that holds a row, and which of its rows it is."""
        number = int(np.searchsorted(self.starts, row, side="right")) - 1
        file = self.files[number]
        return file, int(row - self.starts[number]) + file.start

    def codes(self, column: str) -> tuple[NDArray[np.int32], list[Any]]:
        """A column of strings as (rows,) codes, -1 where it is null, and what they stand for."""
        known: dict[str, tuple[NDArray[np.int32], list[Any]]] = self.__dict__.setdefault("_codes", {})
        if column not in known:
            chunks = self.table.column(column)
            array = chunks.combine_chunks() if chunks.num_chunks != 1 else chunks.chunk(0)
            codes = array.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
            known[column] = codes, array.dictionary.to_pylist()
        return known[column]

    def code(self, column: str, value: str) -> int:
        """The code of a value; -2, which no row has, where nobody has it."""
        book: dict[str, dict[Any, int]] = self.__dict__.setdefault("_books", {})
        if column not in book:
            book[column] = {name: code for code, name in enumerate(self.codes(column)[1])}
        return book[column].get(value, -2)

    def of_probe(self, probe: str, view: str | None = None) -> NDArray[np.int64]:
        """The rows of a probe under all arms; ``view`` where it is asked about several."""
        indices = np.flatnonzero(self.codes("probe_id")[0] == self.code("probe_id", probe))
        if view is not None:
            indices = indices[self.codes("view")[0][indices] == self.code("view", view)]
        return indices

    def records(self, rows: Sequence[int] | NDArray[np.int64], columns: Sequence[str]) -> list[dict[str, Any]]:
        """Some rows as plain values; numbers that are none become null, which JSON has a word for."""
        part = self.table.select(list(columns)).take(pa.array(rows, pa.int64()))
        return [
            {
                name: None if isinstance(value, float) and not np.isfinite(value) else value
                for name, value in record.items()
            }
            for record in part.to_pylist()
        ]


@dataclass
class RowIndex:
    """A run folder, and its rows as they were when last looked at."""

    path: Path
    rows: Rows = field(init=False)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def __post_init__(self) -> None:
        manifest = RunFolder(self.path).manifest()
        self.rows = Rows(0, manifest, [], pa.table({}))
        self.refresh()
        if not self.rows.files:
            raise SightlineError(f"{self.path} has no finished shard yet; view it when `sightline run` has written one")

    def refresh(self) -> bool:
        """Reads what has been written since; whether there was anything."""
        with self._lock:
            old = self.rows
            folder = RunFolder(self.path)
            manifest = folder.manifest()
            keys = [(arm, piece) for arm in manifest["arms"] for piece in pieces(folder.files_of_rows(arm))]
            known = {(file.arm, file.piece): file for file in old.files}
            if keys == list(known):
                if manifest == old.manifest:
                    return False
                self.rows = Rows(old.version + 1, manifest, old.files, old.table)
                return True
            fresh = [key for key in keys if key not in known]
            with ThreadPoolExecutor(READERS) as readers:
                tables = {}
                for key, (start, table) in zip(fresh, readers.map(partial(_light, folder), fresh), strict=True):
                    tables[key] = table
                    known[key] = RowFile(*key, start, table.num_rows)
            files = [known[key] for key in keys]
            kept = {
                (file.arm, file.piece): old.table.slice(int(start), file.count)
                for start, file in zip(old.starts[:-1], old.files, strict=True)
            }
            parts = [tables[key] if key in tables else kept[key] for key in keys]
            self.rows = Rows(old.version + 1, manifest, files, _together(parts) if parts else pa.table({}))
            return True


def _light(folder: RunFolder, key: tuple[str, ShardPiece]) -> tuple[int, pa.Table]:
    """Where a piece of a file begins, and the piece without heavy columns, strings by code."""
    arm, piece = key
    return read_coded(piece, folder.owner(arm), (*HEAVY, *UNASKED))


def _together(parts: Sequence[pa.Table]) -> pa.Table:
    """Tables of one run as one, every column in one piece with one dictionary.

    It has the columns of all, null where a part has none: an arm of an amended run may say more.
    """
    return pa.concat_tables(parts, promote_options="default").unify_dictionaries().combine_chunks()


def layout_of(record: dict[str, Any]) -> list[list[int]]:
    """(rows, columns) of every block of an image's tokens."""
    return [list(block) for block in json.loads(record["layout"])]


# The probes of a run: looked up by name, read when first asked for, and again when their file has changed.


@dataclass
class ProbeBook:
    """``probes.jsonl`` of one run folder: where each record stands, and the few texts that are searched."""

    folder: Path
    _stamp: tuple[int, int] | None = field(init=False, default=None)
    _offsets: dict[tuple[str, str], int] = field(init=False, default_factory=dict)
    _texts: dict[tuple[str, str], dict[str, str]] = field(init=False, default_factory=dict)
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)

    def _read(self) -> None:
        file = self.folder / PROBES
        seen = file.stat()
        with self._lock:
            if self._stamp == (seen.st_mtime_ns, seen.st_size):
                return
            self._offsets.clear()
            self._texts.clear()
            at = 0
            with open(file, "rb") as lines:
                for line in lines:
                    if line.strip() and "id" in (record := json.loads(line)):
                        name, view = str(record["id"]), str(record.get("view", ORIGINAL))
                        self._offsets.setdefault((name, view), at)
                        texts = {key: str(record.get(key) or "") for key in ("question", "target_text", "source_text")}
                        usual = self._texts.get((name, ""))
                        if view == ORIGINAL or usual is None:
                            self._offsets[name, ""] = at
                            self._texts[name, ""] = texts
                        elif texts != usual:
                            self._texts[name, view] = texts
                    at += len(line)
            self._stamp = (seen.st_mtime_ns, seen.st_size)

    def record(self, probe: str, view: str) -> dict[str, Any]:
        """The probe's record about a view; about one that an intervention made, that about the original."""
        self._read()
        offset = self._offsets.get((probe, view), self._offsets.get((probe, "")))
        if offset is None:
            return {}
        with open(self.folder / PROBES, "rb") as lines:
            lines.seek(offset)
            return dict(json.loads(lines.readline()))

    def text(self, probe: str, view: str, key: str) -> str:
        """What a probe says about a view; where nothing of its own, what it says about the original."""
        if self._stamp is None:
            self._read()
        return (self._texts.get((probe, view)) or self._texts.get((probe, ""), {})).get(key, "")
