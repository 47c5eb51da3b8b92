"""One run folder on disk: what is in it, what is still missing, and writes that are either whole or absent."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa

from sightline.core.probe import ORIGINAL
from sightline.core.row import SCHEMA_VERSION, Column, image_schema, row_schema
from sightline.errors import SightlineError
from sightline.store.marks import Mark, write_marked
from sightline.store.migrations import READABLE, migrate_folder
from sightline.store.shard_files import ShardFile, ShardPiece, is_packed, shard_file_name, shard_files
from sightline.store.shard_packs import held_of, unpack
from sightline.store.shard_reading import Owner
from sightline.store.table_digest import texts_digest
from sightline.store.whole_files import make_folder, refuse_unusable_place, write_whole

MANIFEST = "run.json"
PROBES = "probes.jsonl"
SUBFOLDERS = ("images", "rows")

FIXED = (
    "model_type", "weight_digest", "probe_digest", "dtype", "profile", "positions", "box_source", "image_options",
    "shard_images", "shard_probes", "limit", "execution", "batch_images", "scorer",
)  # fmt: skip
"""What may never change under one folder: rows with different values here do not belong in one table."""
FIXED_ONCE_SAID = ("attention", "checkpoint_files", "clip_files")
"""Likewise, but an earlier release did not say, nor does a command without CLIP: that agrees with anything."""
CHECKPOINTS = {"checkpoint_files": "the checkpoint", "clip_files": "the CLIP checkpoint"}
"""Fields that hold a digest per file, and whose files they are."""
MODEL = ("model_type", "weight_digest")
"""Fields that tell one model from another."""
BEFORE = {"execution": "eager", "batch_images": 1, "scorer": "yes_no", "shard_probes": None}
"""What runs were made with before the manifest said so."""


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
            self.refuse_other(manifest)
            # An arm that failed is gone on with only where it is named again: it must not stop all others for ever.
            aside = {arm: why for arm, why in old.get("set_aside", {}).items() if arm not in arms}
            arms = list(dict.fromkeys([*(arm for arm in old["arms"] if arm not in aside), *arms]))
            manifest = {**migrate_folder(self.path, old), **manifest, "seed": old.get("seed"), "set_aside": aside}
        else:
            self.refuse_foreign()
            manifest = {**manifest, "marked": True}
        for folder in (self.path, *(self.path / name for name in SUBFOLDERS)):
            make_folder(folder)
        for leftover in self.path.rglob(".*.tmp"):
            leftover.unlink(missing_ok=True)
        write_whole(self.path / PROBES, probes)
        self._write_manifest({**manifest, "schema": SCHEMA_VERSION, "arms": arms})
        self.__dict__.pop("_identity", None)
        return arms

    def refuse_other(self, settings: Mapping[str, Any]) -> None:
        """Refuses settings, of which only some may be known yet, that do not agree with the run in the folder."""
        difference = self.difference(settings)
        if difference is not None:
            raise SightlineError(f"{self.path} holds a run {difference}; choose another --out")

    def difference(self, settings: Mapping[str, Any]) -> str | None:
        """In what settings do not agree with the run in the folder, in words."""
        old = {**BEFORE, **self.manifest()}
        said = [field for field in FIXED_ONCE_SAID if field in old]
        differing = (field for field in (*FIXED, *said) if field in settings and old.get(field) != settings[field])
        return next((_difference(field, old, settings) for field in differing), None)

    def refuse_foreign(self) -> None:
        """Refuses a place that cannot become a run folder: not writable, or holding something else."""
        refuse_unusable_place(self.path)
        if not all(map(self._is_beginning, self.path.rglob("*"))):
            raise SightlineError(f"{self.path} exists, is not empty and is not a run folder; choose another --out")

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
            for arm in (*manifest["arms"], *manifest.get("set_aside", {})):
                self._forget(self.files_of_rows(arm), self.owner(arm), shard)
            self._forget(self.files_of_images(), self.owner(), shard)
        if mended:
            left = {name: entry for name, entry in bad.items() if name not in mended}
            self._write_manifest({**manifest, "bad_images": left})

    def _forget(self, files: Iterable[ShardFile], owner: Owner, shard: int) -> None:
        for file in files:
            if shard in file.shards:
                if file.packed:
                    unpack(file, owner, without=shard)
                file.path.unlink(missing_ok=True)

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
        """Where the rows of a shard are written; ``sightline compact`` puts them into a pack."""
        return self.path / "rows" / arm_folder_name(arm) / shard_file_name(shard)

    def images_file(self, shard: int, view: str) -> Path:
        """Records of a shard's images; every version that an intervention shows has a file of its own."""
        return self.path / "images" / shard_file_name(shard, version=image_version(view))

    def files_of_rows(self, arm: str) -> list[ShardFile]:
        """The arm's files, by shard."""
        return shard_files(self.rows_file(arm, 0).parent)

    def files_of_images(self) -> list[ShardFile]:
        """The records of all images, by shard and version."""
        return shard_files(self.path / "images")

    def owner(self, arm: str | None = None) -> Owner:
        """What files of an arm's rows, or of image records, must say of themselves."""
        identity, _, marked = self._identity
        return Owner(self.path, identity, arm, marked)

    @cached_property
    def _identity(self) -> tuple[str, str, bool]:
        """Of the run in this folder: its digest, its model in words, whether all of its files are marked."""
        manifest = self.manifest()
        return identity_of(manifest), model_words(manifest), bool(manifest.get("marked"))

    def has_images(self, shard: int, view: str) -> bool:
        file = self.images_file(shard, view)
        return file.is_file() or is_packed(file.parent, shard, image_version(view))

    def recorded_images(self) -> set[tuple[int, str]]:
        """Shards and versions whose image records are there, by one listing."""
        return {(shard, file.version or ORIGINAL) for file in self.files_of_images() for shard in file.shards}

    def image_digests(self, shard: int) -> dict[str, str]:
        """What the files of a shard's images were when they were recorded, by name; empty for a new shard.

        Every version of an image is made from the same file, so the records of one version speak for all.
        """
        digests: dict[str, str] = {}
        for file in self.files_of_images():
            if shard in file.shards:
                table = self.owner().read(ShardPiece(file, shard, shard), ["image", "digest"])
                digests.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
        return digests

    def any_rows(self, arm: str) -> bool:
        """Whether some shard of the arm is finished."""
        return bool(self.files_of_rows(arm))

    def finished_shards(self, arm: str) -> set[int]:
        """Shards whose rows under an arm are there, by one listing."""
        return {shard for file in self.files_of_rows(arm) for shard in file.shards}

    def has_all_rows(self, arm: str, shards: int) -> bool:
        return self.finished_shards(arm).issuperset(range(shards))

    def has_rows(self, arm: str, shard: int) -> bool:
        file = self.rows_file(arm, shard)
        return file.is_file() or is_packed(file.parent, shard)

    def write_rows(self, arm: str, shard: int, rows: list[dict[str, Any]], own: tuple[Column, ...]) -> None:
        """``own`` are the columns that the scorer adds to every row. Rows that are there already stay as they are."""
        if not self.has_rows(arm, shard):
            self.write_row_table(arm, shard, pa.Table.from_pylist(rows, schema=row_schema(own)))

    def write_row_table(self, arm: str, shard: int, rows: pa.Table) -> None:
        self._write(self.rows_file(arm, shard), rows, shard, arm)

    def write_images(self, shard: int, view: str, images: list[dict[str, Any]]) -> None:
        self.write_image_table(shard, view, pa.Table.from_pylist(images, schema=image_schema()))

    def write_image_table(self, shard: int, view: str, images: pa.Table) -> None:
        self._write(self.images_file(shard, view), images, shard, version=image_version(view))

    def _write(self, path: Path, table: pa.Table, shard: int, arm: str | None = None, version: str = "") -> None:
        make_folder(path.parent)
        held = held_of(table, shard, arm)
        run, model, _ = self._identity
        sink = BytesIO()
        write_marked(sink, table.schema, [table], Mark(run, model, arm, version, (held,)))
        write_whole(path, sink.getvalue())


def image_version(view: str) -> str:
    """What file names and marks call a version of images."""
    return "" if view == ORIGINAL else view


def identity_of(manifest: Mapping[str, Any]) -> str:
    """A digest of what may never change under one folder, so that a file can say whose it is.

    What is as it was before a manifest named it does not enter: a setting that a later release adds changes nothing.
    """
    settings = {field: manifest.get(field) for field in FIXED if manifest.get(field) != BEFORE.get(field)}
    return texts_digest([json.dumps(settings, sort_keys=True)])


def _difference(field: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    """How a recorded manifest and a command differ in a field: in names where there are some, not in digests."""
    if field in MODEL:
        if model_words(old) == model_words(new):
            return f"of {model_words(old)} with other weights"
        return f"of {model_words(old)}, this command has {model_words(new)}"
    if field in CHECKPOINTS:
        before, now = old[field], new[field]
        names = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
        return f"that was made with other content of {', '.join(names)} in {CHECKPOINTS[field]}"
    if field == "probe_digest":
        return "over other probes"
    return f"with {field} {_short(old.get(field))}, this command has {_short(new[field])}"


def model_words(manifest: Mapping[str, Any]) -> str:
    return f"{manifest.get('model', 'another model')} ({manifest.get('model_type', 'unknown')})"


def _short(value: Any) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if len(text) <= 80 else f"{text[:77]}..."
