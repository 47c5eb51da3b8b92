"""A run on disk, in one folder or in parts: what is there, what is missing, and writes that are whole or absent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

import pyarrow as pa

from sightline.core.probe import ORIGINAL
from sightline.core.row import SCHEMA_VERSION, Column, image_schema, row_schema
from sightline.errors import SightlineError
from sightline.places.listing import TRIAL, Listing, Place, is_remote, place, remove
from sightline.places.writing import make_folder, make_within, refuse_unusable_place, remove_leftovers, write_whole
from sightline.store.leases import LEASES
from sightline.store.manifest import (
    ACCEPTABLE,
    CHECKSUM,
    NOTES,
    OF_PROBES,
    SEVERAL_MACHINES,
    Notes,
    identity_of,
    manifest_bytes,
    manifest_problem,
    model_words,
    read_manifest,
    settings_difference,
    with_all_values,
)
from sightline.store.shard_files import (
    Mark,
    Owner,
    Problem,
    ShardFile,
    ShardPiece,
    is_packed,
    pieces,
    shard_file_name,
    shard_files,
    shard_mark,
    unpack,
    write_marked,
)

if TYPE_CHECKING:
    RunPlace: TypeAlias = Place | str | Sequence[Place | str]
else:
    RunPlace = object
    """A run folder, a folder of run folders that are one run in parts, or such folders one by one; paths or URLs."""

MANIFEST = "run.json"
PROBES = "probes.jsonl"
SUBFOLDERS = ("images", "rows")
_BEGUN = (
    rf"({'|'.join((*SUBFOLDERS, LEASES, NOTES))})/(.*/)?"
    rf"|{LEASES}/\.?(driver|opening|member|boxes)[\w.-]*\.(json|tmp)"
    rf"|\.({re.escape(MANIFEST)}|{re.escape(PROBES)})\.[\w-]+\.tmp|{re.escape(TRIAL)}\w+"
)
"""Names that there may be below a run folder before there is a manifest; those of folders end in a slash."""


def arm_folder_name(arm: str) -> str:
    """A readable, collision-free folder name for an arm."""
    return f"{re.sub(r'[^A-Za-z0-9.]+', '-', arm).strip('-')[:60]}-{sha256(arm.encode()).hexdigest()[:8]}"


class RunFolder:
    """Reads and writes ``run.json``, ``probes.jsonl``, ``images/*.parquet`` and ``rows/<arm>/*.parquet``."""

    def __init__(self, path: Place | str) -> None:
        self.path = place(path)
        self.files = Listing(self.path)
        """Of a URL as it was first asked for, with what this object wrote since; ``files.refresh()`` asks again."""
        self.notes = Notes(self.files)

    @property
    def exists(self) -> bool:
        return self.files.has(self.path / MANIFEST)

    def manifest(self) -> dict[str, Any]:
        """``run.json`` and what was found out since: arms and tasks set aside, unreadable images, time for set-up."""
        manifest = self._stored_manifest()
        aside = {note["arm"]: note["reason"] for note in self.notes.of_kind("aside").values()}
        bad = {name: entry for note in self.notes.of_kind("bad").values() for name, entry in note.items()}
        for field, found in (("set_aside", aside), ("bad_images", bad)):
            if found:
                manifest[field] = {**manifest.get(field, {}), **found}
        if setup := sum(note["setup_ms"] for note in self.notes.of_kind("setup").values()):
            manifest["setup_ms"] = manifest.get("setup_ms", 0.0) + setup
        for task, reasons in self.notes.failures().set_aside().items():
            shard = int(task.split(".")[0])
            for arm, reason in reasons.items():
                if not self.has_rows(arm, shard):  # else somebody got it done after all
                    manifest.setdefault("failed", {}).setdefault(task, {})[arm] = reason
        return manifest

    def _stored_manifest(self) -> dict[str, Any]:
        return {"shards": 0, **read_manifest(self.path / MANIFEST)}

    def open(
        self,
        manifest: Mapping[str, Any],
        arms: Iterable[str],
        probes: bytes,
        *,
        alone: bool = True,
        accept: bool = False,
    ) -> list[str]:
        """Creates the folder, or resumes or amends an existing one after checking that it is the same run.

        Returns all arms of the run, old ones first: adding an arm amends the run, it never removes one. Where others
        are at work in the folder (not ``alone``), what they have under way is left as it is. ``accept``: settings that
        decide the last bits may be others than before, and all of them stay in the manifest.
        """
        arms, manifest = list(arms), dict(manifest)
        self.files.refresh()
        stored = old = self._stored_manifest() if self.exists else None
        if old is not None:
            self.refuse_other(manifest, without=ACCEPTABLE if accept else ())
            # An arm that failed is gone on with only where it is named again: it must not stop all others for ever.
            noted = {note["arm"]: name for name, note in self.notes.of_kind("aside").items()}
            if alone:
                self.notes.remove(name for arm, name in noted.items() if arm in arms)
            aside = {arm: why for arm, why in old.get("set_aside", {}).items() if arm not in arms}
            left = [arm for arm in old["arms"] if arm in arms or arm not in {*aside, *noted}]
            arms = list(dict.fromkeys([*left, *arms]))
            manifest = {**old, **with_all_values(old, manifest), "seed": old.get("seed"), "set_aside": aside}
            if not alone:
                manifest["created"] = old.get("created")
        else:
            self.refuse_foreign()
            manifest = {**manifest, "marked": True}
        for folder in (self.path, *(self.path / name for name in SUBFOLDERS)):
            make_folder(folder)
        remove_leftovers(self.path, alone=alone)
        manifest = {**manifest, "schema": SCHEMA_VERSION, "arms": arms}
        anew = stored is None or alone or not self.files.has(self.path / PROBES)
        if anew:
            manifest[OF_PROBES] = [sha256(probes).hexdigest()]
            if stored is not None:
                self._announce_probes(stored, manifest[OF_PROBES])
        # A store has no sub-folders: a probe file alone in it could as well be somebody else's.
        for file in (MANIFEST, PROBES) if is_remote(self.path) else (PROBES, MANIFEST):
            if file == MANIFEST and manifest != stored:
                self._write_manifest(manifest)
                self.__dict__.pop("_identity", None)
            elif file == PROBES and anew:
                write_whole(self.path / PROBES, probes)
                self.files.added(self.path / PROBES)
        return arms

    def _announce_probes(self, stored: Mapping[str, Any], checksum: list[str]) -> None:
        """Before a probe file that differs is written: a kill in between leaves a manifest that knows both."""
        if (known := stored.get(OF_PROBES)) and known != checksum:
            self._write_manifest({**stored, OF_PROBES: [*known, *checksum]})

    def refuse_other(self, settings: Mapping[str, Any], *, without: tuple[str, ...] = ()) -> None:
        """Refuses settings, of which only some may be known yet, that do not agree with the run in the folder; some may
        be left out."""
        if differs := settings_difference(self.manifest(), settings, without=without):
            field, words = differs
            both = ", or accept rows of both in it with --accept-change" if field in ACCEPTABLE and not without else ""
            raise SightlineError(f"{self.path} holds a run {words}; choose another --out{both}")

    def refuse_foreign(self) -> None:
        """Refuses a place that cannot become a run folder: not writable, or holding something else."""
        refuse_unusable_place(self.path)
        names = set(self.files.everything())
        if {f"{name}/" for name in SUBFOLDERS} <= names:  # else a probe file is somebody else's
            names.discard(PROBES)
        if all(re.fullmatch(_BEGUN, name) for name in names):
            return  # there is nothing, or what ``open`` leaves when it is killed before there is a manifest
        self.files.refresh()  # meanwhile another process may have made a run folder of it, its manifest last
        if not self.exists:
            raise SightlineError(f"{self.path} exists, is not empty and is not a run folder; choose another --out")

    def record_inputs(self, digests: Mapping[str, str]) -> None:
        """Records what files some arms read, by digest, after checking that their rows so far came from the same."""
        manifest = self._stored_manifest()
        recorded = manifest.get("inputs", {})
        for arm, digest in digests.items():
            if recorded.get(arm, digest) != digest and self.finished_shards(arm):
                raise SightlineError(
                    f"{self.path} holds rows of {arm} that were made from other content of its file; "
                    "restore the file or choose another --out"
                )
        if any(recorded.get(arm) != digest for arm, digest in digests.items()):
            self._write_manifest({**manifest, "inputs": {**recorded, **digests}})

    def set_aside(self, arms: Iterable[str], reason: str) -> None:
        """Records that arms failed: the next command leaves them out unless it names them. Their rows so far stay."""
        for arm in arms:
            self.notes.write(f"aside.{arm_folder_name(arm)}", {"arm": arm, "reason": reason})

    def leave_out(self, arm: str, reason: str) -> None:
        """Sets an arm aside at once. For whoever has the folder to itself for the moment."""
        self.set_aside([arm], reason)
        manifest = self._stored_manifest()
        self._write_manifest({**manifest, "arms": [name for name in manifest["arms"] if name != arm]})

    def forget_shards_of(self, images: Iterable[str]) -> None:
        """Removes whatever was computed beside images that could not be read and now can, so that it is computed again.

        A shard is one batch: rows of its other images could not stay as they are. For whoever is alone in the folder.
        """
        manifest, mended = self.manifest(), set(images)
        for shard in {entry["shard"] for name, entry in manifest.get("bad_images", {}).items() if name in mended}:
            for arm in (*manifest["arms"], *manifest.get("set_aside", {})):
                self._forget(self.files_of_rows(arm), self.owner(arm), shard)
            self._forget(self.files_of_images(), self.owner(), shard)
            self.notes.remove([f"bad.{shard:05d}"])
        stored = self._stored_manifest()
        if mended & stored.get("bad_images", {}).keys():
            left = {name: entry for name, entry in stored["bad_images"].items() if name not in mended}
            self._write_manifest({**stored, "bad_images": left})

    def _forget(self, files: Iterable[ShardFile], owner: Owner, shard: int) -> None:
        for file in files:
            if shard in file.shards:
                if file.packed:
                    unpack(file, owner, without=shard)
                    self.files.refresh()
                remove(file.path)
                self.files.removed(file.path)

    def describe_boxes(self, facts: Mapping[str, Any], probes: bytes) -> None:
        """What a detector's boxes turned out to be like, and the probes with them, known when all have been found."""
        stored, checksum = self._stored_manifest(), [sha256(probes).hexdigest()]
        self._announce_probes(stored, checksum)
        write_whole(self.path / PROBES, probes)
        self._write_manifest({**stored, "boxes": dict(facts), OF_PROBES: checksum})

    def _write_manifest(self, manifest: Mapping[str, Any]) -> None:
        """Over one that is what was written: a damaged one must not get a checksum that hides it."""
        if self.exists and (problem := manifest_problem(read_manifest(self.path / MANIFEST))):
            raise SightlineError(
                f"{self.path / MANIFEST} is damaged: {problem}; restore it, or take it as it is by removing "
                f"'{CHECKSUM}' and '{OF_PROBES}' from it"
            )
        write_whole(self.path / MANIFEST, manifest_bytes(manifest))
        self.files.added(self.path / MANIFEST)

    def rows_file(self, arm: str, shard: int) -> Place:
        """Where the rows of a shard are written; ``sightline compact`` puts them into a pack."""
        return self.path / "rows" / arm_folder_name(arm) / shard_file_name(shard)

    def images_file(self, shard: int, view: str) -> Place:
        """Records of a shard's images; every version that an intervention shows has a file of its own."""
        return self.path / "images" / shard_file_name(shard, version=image_version(view))

    def files_of_rows(self, arm: str) -> list[ShardFile]:
        """The arm's files, by shard."""
        return shard_files(self.files.within(f"rows/{arm_folder_name(arm)}"))

    def files_of_images(self) -> list[ShardFile]:
        """The records of all images, by shard and version."""
        return shard_files(self.files.within("images"))

    def owner(self, arm: str | None = None) -> Owner:
        """What files of an arm's rows, or of image records, must say of themselves."""
        return Owner(self.path, self._identity[0], arm)

    @cached_property
    def _identity(self) -> tuple[str, str]:
        """Of the run in this folder: its digest, and its model in words."""
        manifest = self.manifest()
        return identity_of(manifest), model_words(manifest)

    def has_images(self, shard: int, view: str) -> bool:
        return self.files.has(self.images_file(shard, view)) or is_packed(
            self.files.matching("images/*-*.parquet"), shard, image_version(view)
        )

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
                if table.column_names != ["image", "digest"]:
                    raise SightlineError(
                        f"{file.path} is damaged: it names no images; delete it and run the same command again"
                    )
                digests.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
        return digests

    def damaged_files(self, arms: Iterable[str]) -> list[Problem]:
        """Files that must not be taken for done, told by their footers: not readable, or of another run, arm or shard.

        Quick enough for every command that goes on with a run; a flipped bit elsewhere is found when rows are read.
        """
        shards = int(self.manifest()["shards"])
        rows = [(self.owner(arm), self.files_of_rows(arm)) for arm in arms]
        images = (self.owner(), self.files_of_images())
        checked = (owner.check(file, shards, footer_alone=True) for owner, files in (*rows, images) for file in files)
        return [problem for problem in checked if isinstance(problem, Problem)]

    def finished_shards(self, arm: str) -> set[int]:
        """Shards whose rows under an arm are there, by one listing; of a URL, by the last."""
        return {shard for file in self.files_of_rows(arm) for shard in file.shards}

    def has_rows(self, arm: str, shard: int) -> bool:
        return self.files.has(self.rows_file(arm, shard)) or is_packed(
            self.files.matching(f"rows/{arm_folder_name(arm)}/*-*.parquet"), shard
        )

    def write_rows(self, arm: str, shard: int, rows: list[dict[str, Any]], own: tuple[Column, ...]) -> None:
        """``own`` are the columns that the scorer adds to every row. Rows that are there already stay as they are."""
        if not self.has_rows(arm, shard):
            self.write_row_table(arm, shard, pa.Table.from_pylist(rows, schema=row_schema(own)))

    def write_row_table(self, arm: str, shard: int, rows: pa.Table) -> None:
        self._write(self.rows_file(arm, shard), rows, shard, arm)

    def write_images(self, shard: int, view: str, images: list[dict[str, Any]]) -> None:
        """Records that are there already stay as they are."""
        if not self.has_images(shard, view):
            self.write_image_table(shard, view, pa.Table.from_pylist(images, schema=image_schema()))

    def write_image_table(self, shard: int, view: str, images: pa.Table) -> None:
        self._write(self.images_file(shard, view), images, shard, version=image_version(view))

    def _write(self, path: Place, table: pa.Table, shard: int, arm: str | None = None, version: str = "") -> None:
        make_within(self.path, path.parent)
        mark, sink = Mark(*self._identity, arm, version, (shard_mark(table, shard, arm),)), BytesIO()
        write_marked(sink, table.schema, [table], mark)
        write_whole(path, sink.getvalue())
        self.files.added(path)


def image_version(view: str) -> str:
    """What file names and marks call a version of images."""
    return "" if view == ORIGINAL else view


# Where the rows of a run are: in one folder, or in several that are one run in parts, computed in several places.


@dataclass(frozen=True)
class RunFiles:
    """The files of a run, and what its manifest says of it."""

    path: Place
    manifest: dict[str, Any]
    parts: tuple[Place, ...] = ()
    """The folders of a run in parts; of an ordinary one none but its own."""

    @cached_property
    def folders(self) -> tuple[RunFolder, ...]:
        return tuple(map(RunFolder, self.parts or (self.path,)))

    @property
    def probe_file(self) -> Place:
        return self.folders[0].path / PROBES

    @property
    def arms(self) -> list[str]:
        return list(self.manifest["arms"])

    def files_of_rows(self, arm: str) -> list[ShardFile]:
        return [file for folder in self.folders for file in folder.files_of_rows(arm)]

    def finished_shards(self, arm: str) -> set[int]:
        return {shard for file in self.files_of_rows(arm) for shard in file.shards}

    def pieces(self, arm: str) -> list[ShardPiece]:
        """Where an arm's rows are, in the order of shards, each shard once."""
        return pieces(self.files_of_rows(arm))

    def files_of_images(self) -> list[list[ShardFile]]:
        """Those of every version of the images."""
        versions: dict[str, list[ShardFile]] = {}
        for folder in self.folders:
            for file in folder.files_of_images():
                versions.setdefault(file.version, []).append(file)
        return list(versions.values())

    def pieces_of_arms(self, arms: Sequence[str] | None = None) -> Iterator[tuple[ShardPiece, Owner]]:
        """Where the rows of all arms, or of some, are, in the run's order."""
        for arm in self.arms if arms is None else arms:
            owner = self.owner(arm)
            yield from ((piece, owner) for piece in self.pieces(arm))

    def owner(self, arm: str | None = None) -> Owner:
        """What files of an arm's rows, or of image records, must say of themselves."""
        return replace(self.folders[0].owner(arm), path=self.path)

    def image_pieces(self) -> list[ShardPiece]:
        """Where image records are, by shard and version."""
        found = (piece for files in self.files_of_images() for piece in pieces(files))
        return sorted(found, key=lambda piece: (piece.first, piece.file.path.name))

    @property
    def missing(self) -> int:
        """How many (arm, shard) files are still to be computed; 0 for a finished run."""
        return sum(len(set(range(self.manifest["shards"])) - self.finished_shards(arm)) for arm in self.arms)


def open_files(where: RunPlace) -> RunFiles:
    """The files of a run, after comparing its parts, if it has several."""
    folders = part_folders(where)
    named = folders[0].path if is_several(where) else place(where)
    parts = tuple(folder.path for folder in folders)
    return RunFiles(named, joined_manifest(folders), () if parts == (named,) else parts)


def is_several(where: RunPlace) -> TypeGuard[Sequence[Place | str]]:
    return isinstance(where, Sequence) and not isinstance(where, str)


def part_folders(where: RunPlace) -> list[RunFolder]:
    """The folders of a run. One without a manifest that holds run folders is a run in parts."""
    if is_several(where):
        if not where:
            raise SightlineError("no run folder given: name at least one")
        return [folder for one in where for folder in part_folders(one)]
    whole = RunFolder(where)
    parts = [] if whole.exists else [RunFolder(file.parent) for file in whole.files.matching(f"*/{MANIFEST}")]
    return parts or [whole]


def joined_manifest(folders: Sequence[RunFolder]) -> dict[str, Any]:
    """One manifest of all parts; parts that do not belong together are refused with what differs."""
    first, *others = manifests = [folder.manifest() for folder in folders]
    for folder, other in zip(folders[1:], others, strict=True):
        _refuse_unfitting(folders[0], first, folder, other)
    if not others:
        return first

    def every(field: str) -> list[str]:
        return list(dict.fromkeys(arm for manifest in manifests for arm in manifest.get(field, ())))

    merged: dict[str, dict[str, Any]] = {"set_aside": {}, "bad_images": {}, "inputs": {}, "imports": {}}
    mixed: dict[str, Any] = {}
    for manifest in manifests:
        mixed = with_all_values({**first, "mixed": mixed or first.get("mixed", {})}, manifest).get("mixed", {})
        for field, known in merged.items():
            known |= manifest.get(field, {})
    return {
        **first,
        **({"mixed": mixed} if mixed else {}),
        **{field: known for field, known in merged.items() if known or field in first},
        "arms": every("arms"),
        "matched_controls": every("matched_controls"),
        "setup_ms": sum(manifest.get("setup_ms", 0.0) for manifest in manifests),
        "part": None,
    }


def _refuse_unfitting(one: RunFolder, manifest: dict[str, Any], other: RunFolder, others: dict[str, Any]) -> None:
    words, read = "", others.get("inputs", {})
    for arm, digest in manifest.get("inputs", {}).items():
        if read.get(arm, digest) != digest:
            words = f"their rows of {arm} were made from other content of its file"
    if manifest["shards"] != others["shards"]:
        words = f"the first is with {manifest['shards']} shards, the other has {others['shards']}"
    if found := settings_difference(manifest, others, without=SEVERAL_MACHINES):
        words = f"the first is {found[1].replace('this command has', 'the other has')}"
    if words:
        raise SightlineError(f"{one.path} and {other.path} are not one run: {words}")


def refuse_conflicts(folders: Sequence[RunFolder], arms: Sequence[str]) -> None:
    """Refuses a shard of an arm that two parts hold with different rows; timings may differ."""
    for arm in arms:
        holders: dict[int, tuple[RunFolder, ShardFile]] = {}
        held = (
            (folder, file, shard) for folder in folders for file in folder.files_of_rows(arm) for shard in file.shards
        )
        for folder, file, shard in held:
            first, before = holders.setdefault(shard, (folder, file))
            if first is not folder and _values(first, before, arm, shard) != _values(folder, file, arm, shard):
                raise SightlineError(
                    f"{before.path} and {file.path} hold different rows of the same probes; leave one of the two "
                    "folders out"
                )


def _values(folder: RunFolder, file: ShardFile, arm: str, shard: int) -> str:
    """The digest of a shard's rows, as the file says it."""
    return next(held.values for held in folder.owner(arm).opened(file)[1].shards if held.shard == shard)
