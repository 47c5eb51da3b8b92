"""One run folder on disk: what is in it, what is still missing, and writes that are either whole or absent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sightline.core.probe import ORIGINAL
from sightline.core.row import SCHEMA_VERSION, Column, image_schema, row_schema
from sightline.errors import SightlineError
from sightline.places import Listing, Place, is_remote, open_ranges, place, read_whole, told_of
from sightline.places.objects import remove
from sightline.store.migrations import READABLE, migrate_folder
from sightline.store.whole_files import make_folder, refuse_unusable_place, write_whole

MANIFEST = "run.json"
PROBES = "probes.jsonl"
SUBFOLDERS = ("images", "rows")

FIXED = (
    "model_type", "weight_digest", "probe_digest", "dtype", "profile", "positions", "box_source", "image_options",
    "shard_images", "limit", "execution", "batch_images", "scorer",
)  # fmt: skip
"""What may never change under one folder: rows with different values here do not belong in one table."""
FIXED_ONCE_SAID = ("attention", "checkpoint_files", "clip_files")
"""Likewise, but an earlier release did not say, nor does a command without CLIP: that agrees with anything."""
CHECKPOINTS = {"checkpoint_files": "the checkpoint", "clip_files": "the CLIP checkpoint"}
"""Fields that hold a digest per file, and whose files they are."""
MODEL = ("model_type", "weight_digest")
"""Fields that tell one model from another."""
BEFORE = {"execution": "eager", "batch_images": 1, "scorer": "yes_no"}
"""What runs were made with before the manifest said so."""


def arm_folder_name(arm: str) -> str:
    """A readable, collision-free folder name for an arm."""
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', arm).strip('-')[:60]}-{sha256(arm.encode()).hexdigest()[:8]}"


class RunFolder:
    """Reads and writes ``run.json``, ``probes.jsonl``, ``images/*.parquet`` and ``rows/<arm>/*.parquet``."""

    def __init__(self, path: Place | str) -> None:
        self.path = place(path)
        self.files = Listing(self.path)
        """Of a URL as it was first asked for, with what this object wrote since; ``files.refresh()`` asks again."""

    @property
    def exists(self) -> bool:
        return self.files.has(self.path / MANIFEST)

    def manifest(self) -> dict[str, Any]:
        try:
            manifest = json.loads(read_whole(self.path / MANIFEST))
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
        self.files.refresh()
        if self.exists:
            old = {**BEFORE, **self.manifest()}
            self.refuse_other(manifest)
            # An arm that failed is gone on with only where it is named again: it must not stop all others for ever.
            aside = {arm: why for arm, why in old.get("set_aside", {}).items() if arm not in arms}
            arms = list(dict.fromkeys([*(arm for arm in old["arms"] if arm not in aside), *arms]))
            if old["schema"] != SCHEMA_VERSION:
                with told_of(self.path, "rename files of"):
                    old = migrate_folder(self.path, old)
                self.files.refresh()
            manifest = {**old, **manifest, "seed": old.get("seed"), "set_aside": aside}
        else:
            self.refuse_foreign()
        for folder in (self.path, *(self.path / name for name in SUBFOLDERS)):
            make_folder(folder)
        if not is_remote(self.path):  # an object is put under its own name
            for leftover in self.path.rglob(".*.tmp"):
                leftover.unlink(missing_ok=True)
        manifest = {**manifest, "schema": SCHEMA_VERSION, "arms": arms}
        if is_remote(self.path):  # without sub-folders, a probe file alone could as well be somebody else's
            self._write_manifest(manifest)
            write_whole(self.path / PROBES, probes)
        else:
            write_whole(self.path / PROBES, probes)
            self._write_manifest(manifest)
        return arms

    def refuse_other(self, settings: Mapping[str, Any]) -> None:
        """Refuses settings, of which only some may be known yet, that do not agree with the run in the folder."""
        old = {**BEFORE, **self.manifest()}
        said = [field for field in FIXED_ONCE_SAID if field in old]
        for field in (*FIXED, *said):
            if field in settings and old.get(field) != settings[field]:
                difference = _difference(field, old, settings)
                raise SightlineError(f"{self.path} holds a run {difference}; choose another --out")

    def refuse_foreign(self) -> None:
        """Refuses a place that cannot become a run folder: not writable, or holding something else."""
        refuse_unusable_place(self.path)
        begun = self.files.is_empty if is_remote(self.path) else all(map(self._is_beginning, self.path.rglob("*")))
        if not begun:
            raise SightlineError(f"{self.path} exists, is not empty and is not a run folder; choose another --out")

    def _is_beginning(self, entry: Place) -> bool:
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
            if recorded.get(arm, digest) != digest and self.any_rows(arm):
                raise SightlineError(
                    f"{self.path} holds rows of {arm} that were made from other content of its file; "
                    "restore the file or choose another --out"
                )
        if digests:
            self._write_manifest({**manifest, "inputs": {**recorded, **digests}})

    def set_aside(self, arms: Iterable[str], reason: str) -> None:
        """Records that arms failed: the next command leaves them out unless it names them. Their rows so far stay."""
        failed = dict.fromkeys(arms, reason)
        if failed:
            manifest = self.manifest()
            self._write_manifest({**manifest, "set_aside": {**manifest.get("set_aside", {}), **failed}})

    def leave_out(self, arm: str, reason: str) -> None:
        """Sets an arm aside at once."""
        self.set_aside([arm], reason)
        manifest = self.manifest()
        self._write_manifest({**manifest, "arms": [name for name in manifest["arms"] if name != arm]})

    def record_bad_images(self, shard: int, reasons: Mapping[str, str]) -> None:
        """Images of a shard that cannot be read, before rows of the others are written."""
        manifest = self.manifest()
        known = manifest.get("bad_images", {})
        found = {name: {"shard": shard, "reason": reason} for name, reason in reasons.items()}
        if any(name not in known for name in found):
            self._write_manifest({**manifest, "bad_images": {**known, **found}})

    def forget_shards_of(self, images: Iterable[str]) -> None:
        """Removes whatever was computed beside images that could not be read and now can, so that it is computed again.

        A shard is one batch: rows of its other images could not stay as they are.
        """
        manifest = self.manifest()
        bad = dict(manifest.get("bad_images", {}))
        mended = set(images)
        for shard in {entry["shard"] for name, entry in bad.items() if name in mended}:
            for pattern in (f"rows/*/{shard:05d}.parquet", f"images/{shard:05d}.*"):
                for file in self.files.matching(pattern):
                    remove(file)
                    self.files.removed(file)
        if mended:
            left = {name: entry for name, entry in bad.items() if name not in mended}
            self._write_manifest({**manifest, "bad_images": left})

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
        self.files.added(self.path / MANIFEST)

    def rows_file(self, arm: str, shard: int) -> Place:
        return self.path / "rows" / arm_folder_name(arm) / f"{shard:05d}.parquet"

    def images_file(self, shard: int, view: str) -> Place:
        """Records of a shard's images; every version that an intervention shows has a file of its own."""
        version = "" if view == ORIGINAL else f".{view}"
        return self.path / "images" / f"{shard:05d}{version}.parquet"

    def has_images(self, shard: int, view: str) -> bool:
        return self.files.has(self.images_file(shard, view))

    def image_digests(self, shard: int) -> dict[str, str]:
        """What the files of a shard's images were when they were recorded, by name; empty for a new shard.

        Every version of an image is made from the same file, so the records of one version speak for all.
        """
        digests: dict[str, str] = {}
        for file in self.files.matching(f"images/{shard:05d}.*"):
            table = read_table(file, ["image", "digest"])
            digests.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
        return digests

    def files_of_rows(self, arm: str) -> list[Place]:
        """The arm's files, by shard."""
        return self.files.matching(f"rows/{arm_folder_name(arm)}/*.parquet")

    def files_of_images(self) -> list[Place]:
        """The records of all images, by shard and version."""
        return self.files.matching("images/*.parquet")

    def any_rows(self, arm: str) -> bool:
        """Whether some shard of the arm is finished."""
        return bool(self.files_of_rows(arm))

    def has_all_rows(self, arm: str, shards: int) -> bool:
        return all(self.has_rows(arm, shard) for shard in range(shards))

    def has_rows(self, arm: str, shard: int) -> bool:
        return self.files.has(self.rows_file(arm, shard))

    def write_rows(self, arm: str, shard: int, rows: list[dict[str, Any]], own: tuple[Column, ...]) -> None:
        """``own`` are the columns that the scorer adds to every row."""
        self._write(self.rows_file(arm, shard), rows, row_schema(own))

    def write_images(self, shard: int, view: str, images: list[dict[str, Any]]) -> None:
        self._write(self.images_file(shard, view), images, image_schema())

    def _write(self, path: Place, records: list[dict[str, Any]], schema: pa.Schema) -> None:
        make_folder(path.parent)
        sink = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_pylist(records, schema=schema), sink, compression="zstd")
        write_whole(path, sink.getvalue().to_pybytes())
        self.files.added(path)


def read_table(file: Place, columns: list[str] | None = None) -> pa.Table:
    """A file of rows or of image records, or only some of its columns.

    Of an object all columns come in one request; of some, its footer and they alone.
    """
    try:
        if not is_remote(file):
            return pq.read_table(file, columns=columns, partitioning=None)
        if columns is None:
            return pq.read_table(pa.BufferReader(read_whole(file)))
        with told_of(file, "read"), open_ranges(file) as ranges:
            return pq.read_table(ranges, columns=columns, pre_buffer=True)
    except (pa.ArrowInvalid, OSError) as error:
        raise SightlineError(f"{file} cannot be read ({error}); delete it and run the same command again") from None


def _difference(field: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """How a recorded manifest and a command differ in a field: in names where there are some, not in digests."""
    if field in MODEL:
        if _model(old) == _model(new):
            return f"of {_model(old)} with other weights"
        return f"of {_model(old)}, this command has {_model(new)}"
    if field in CHECKPOINTS:
        before, now = old[field], new[field]
        names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
        return f"that was made with other content of {', '.join(names)} in {CHECKPOINTS[field]}"
    if field == "probe_digest":
        return "over other probes"
    return f"with {field} {_short(old.get(field))}, this command has {_short(new[field])}"


def _model(manifest: Mapping[str, Any]) -> str:
    return f"{manifest.get('model', 'another model')} ({manifest.get('model_type', 'unknown')})"


def _short(value: Any) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= 80 else f"{text[:77]}..."
