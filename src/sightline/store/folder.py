"""One run folder on disk: what is in it, what is still missing, and writes that are either whole or absent."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sightline.core.probe import ORIGINAL
from sightline.core.row import SCHEMA_VERSION, Column, image_schema, row_schema
from sightline.errors import SightlineError
from sightline.store.migrations import READABLE, migrate_folder

MANIFEST = "run.json"
PROBES = "probes.jsonl"
SUBFOLDERS = ("images", "rows")

FIXED = (
    "weight_digest", "probe_digest", "dtype", "profile", "positions", "box_source", "image_options",
    "shard_images", "limit", "execution", "batch_images", "scorer",
)  # fmt: skip
"""What may never change under one folder: rows with different values here do not belong in one table."""
FIXED_ONCE_SAID = ("attention", "checkpoint_files", "clip_files")
"""Likewise, but an earlier release did not say, nor does a command without CLIP: that agrees with anything."""
CHECKPOINTS = {"checkpoint_files": "the checkpoint", "clip_files": "the CLIP checkpoint"}
"""Fields that hold a digest per file, and whose files they are."""
BEFORE = {"execution": "eager", "batch_images": 1, "scorer": "yes_no"}
"""What runs were made with before the manifest said so."""


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file so that a kill at any moment leaves either the old content or the new, never a part."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "wb") as handle:
            handle.write(data)
            handle.flush()
            os.fsync(handle.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SightlineError(
            f"cannot write {path}: {error.strerror or error}; finished shards are kept, "
            "free some space and run the same command again"
        ) from error


def arm_folder_name(arm: str) -> str:
    """A readable, collision-free folder name for an arm."""
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', arm).strip('-')[:60]}-{sha256(arm.encode()).hexdigest()[:8]}"


class RunFolder:
    """Reads and writes ``run.json``, ``probes.jsonl``, ``images/*.parquet`` and ``rows/<arm>/*.parquet``."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @property
    def exists(self) -> bool:
        return (self.path / MANIFEST).is_file()

    def manifest(self) -> dict[str, Any]:
        try:
            manifest = json.loads((self.path / MANIFEST).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise SightlineError(f"{self.path} is not a run folder: it has no {MANIFEST}") from None
        except json.JSONDecodeError as error:
            raise SightlineError(
                f"{self.path / MANIFEST} is not valid JSON ({error}); restore it or start anew"
            ) from None
        if manifest.get("schema") not in READABLE:
            raise SightlineError(
                f"{self.path} was written with row schema {manifest.get('schema')}, this version reads {SCHEMA_VERSION}"
            )
        return dict(manifest)

    def open(self, manifest: Mapping[str, Any], arms: Iterable[str], probes: bytes) -> list[str]:
        """Creates the folder, or resumes or amends an existing one after checking that it is the same run.

        Returns all arms of the run, old ones first: adding an arm amends the run, it never removes one.
        """
        arms, manifest = list(arms), {**BEFORE, **manifest}
        if self.exists:
            old = {**BEFORE, **self.manifest()}
            said = [field for field in FIXED_ONCE_SAID if field in old and field in manifest]
            for field in (*FIXED, *said):
                if old.get(field) != manifest.get(field):
                    difference = _difference(field, old.get(field), manifest.get(field))
                    raise SightlineError(f"{self.path} holds a run {difference}; choose another --out")
            arms = list(dict.fromkeys([*old["arms"], *arms]))
            manifest = {**migrate_folder(self.path, old), **manifest, "seed": old.get("seed")}
        elif not all(map(self._is_beginning, self.path.rglob("*"))):
            raise SightlineError(f"{self.path} exists, is not empty and is not a run folder; choose another --out")
        for folder in (self.path, *(self.path / name for name in SUBFOLDERS)):
            folder.mkdir(parents=True, exist_ok=True)
        for leftover in self.path.rglob(".*.tmp"):
            leftover.unlink(missing_ok=True)
        write_whole(self.path / PROBES, probes)
        self._write_manifest({**manifest, "schema": SCHEMA_VERSION, "arms": arms})
        return arms

    def _is_beginning(self, entry: Path) -> bool:
        """Whether ``open`` leaves this when it is killed before there is a manifest: empty sub-folders, a half-written
        file, the probes. A probe file without the sub-folders is somebody else's."""
        if entry.is_symlink():
            return False
        if entry.is_dir():
            return entry.relative_to(self.path).parts[0] in SUBFOLDERS
        if entry.parent != self.path:
            return False
        if entry.name == PROBES:
            return all((self.path / name).is_dir() for name in SUBFOLDERS)
        return any(re.fullmatch(rf"\.{re.escape(name)}\.\d+\.tmp", entry.name) for name in (MANIFEST, PROBES))

    def settle_inputs(self, digests: Mapping[str, str]) -> None:
        """Records what files some arms read, by digest, after checking that their rows so far came from the same."""
        manifest = self.manifest()
        recorded = manifest.get("inputs", {})
        for arm, digest in digests.items():
            if recorded.get(arm, digest) != digest:
                raise SightlineError(
                    f"{self.path} holds rows of {arm} that were made from other content of its file; "
                    "restore the file or choose another --out"
                )
        if digests:
            self._write_manifest({**manifest, "inputs": {**recorded, **digests}})

    def describe_boxes(self, facts: Mapping[str, Any], probes: bytes) -> None:
        """What a detector's boxes turned out to be like, and the probes with them, known when all have been found."""
        write_whole(self.path / PROBES, probes)
        self._write_manifest({**self.manifest(), "boxes": dict(facts)})

    def add_setup(self, ms: float) -> None:
        """Adds a command's time for compiling and capturing to the manifest."""
        manifest = self.manifest()
        self._write_manifest({**manifest, "setup_ms": manifest.get("setup_ms", 0.0) + ms})

    def _write_manifest(self, manifest: Mapping[str, Any]) -> None:
        write_whole(self.path / MANIFEST, (json.dumps(manifest, indent=2, ensure_ascii=False) + "\n").encode())

    def rows_file(self, arm: str, shard: int) -> Path:
        return self.path / "rows" / arm_folder_name(arm) / f"{shard:05d}.parquet"

    def images_file(self, shard: int, view: str) -> Path:
        """Records of a shard's images; every version that an intervention shows has a file of its own."""
        version = "" if view == ORIGINAL else f".{view}"
        return self.path / "images" / f"{shard:05d}{version}.parquet"

    def has_images(self, shard: int, view: str) -> bool:
        return self.images_file(shard, view).is_file()

    def image_digests(self, shard: int) -> dict[str, str]:
        """What the files of a shard's images were when they were recorded, by name; empty for a new shard.

        Every version of an image is made from the same file, so the records of one version speak for all.
        """
        digests: dict[str, str] = {}
        for file in sorted((self.path / "images").glob(f"{shard:05d}.*")):
            table = read_table(file, ["image", "digest"])
            digests.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
        return digests

    def has_rows(self, arm: str, shard: int) -> bool:
        return self.rows_file(arm, shard).is_file()

    def write_rows(self, arm: str, shard: int, rows: list[dict[str, Any]], own: tuple[Column, ...]) -> None:
        """``own`` are the columns that the scorer adds to every row."""
        self._write(self.rows_file(arm, shard), rows, row_schema(own))

    def write_images(self, shard: int, view: str, images: list[dict[str, Any]]) -> None:
        self._write(self.images_file(shard, view), images, image_schema())

    def _write(self, path: Path, records: list[dict[str, Any]], schema: pa.Schema) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(records, schema=schema), sink, compression="zstd")
        write_whole(path, sink.getvalue().to_pybytes())


def read_table(file: Path, columns: list[str] | None = None) -> pa.Table:
    """A file of rows or of image records, or only some of its columns."""
    try:
        return pq.read_table(file, columns=columns, partitioning=None)
    except (pa.ArrowInvalid, OSError) as error:
        raise SightlineError(f"{file} cannot be read ({error}); delete it and run the same command again") from None


def _difference(field: str, old: Any, new: Any) -> str:
    """How a recorded value and that of a command differ; of a checkpoint's files, which ones do."""
    if field not in CHECKPOINTS:
        return f"with {field} {_short(old)}, this command has {_short(new)}"
    names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    return f"that was made with other content of {', '.join(names)} in {CHECKPOINTS[field]}"


def _short(value: Any) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= 80 else f"{text[:77]}..."
