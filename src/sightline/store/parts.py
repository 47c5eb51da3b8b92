"""Where the rows of a run are: in one folder, or in several that together are one run in parts; in few files or many.

Parts are shards, or arms, computed in places that do not share a disk.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeGuard

from sightline.errors import SightlineError
from sightline.places import Place, is_remote, place
from sightline.places.writing import make_folder, refuse_unusable_place, whole_file, write_whole
from sightline.store.folder import MANIFEST, PROBES, RunFolder, arm_folder_name, manifest_bytes
from sightline.store.manifest import SEVERAL_MACHINES, model_words, settings_difference, with_all_values
from sightline.store.shard_files import Owner, ShardFile, ShardPiece, held_shards, pack_groups, pieces, write_pack

if TYPE_CHECKING:
    RunPlace: TypeAlias = Place | str | Sequence[Place | str]
else:
    RunPlace = object
    """A run folder, a folder of run folders that are one run in parts, or such folders one by one; paths or URLs."""


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

    def pieces(self, arm: str) -> list[ShardPiece]:
        """Where an arm's rows are, in the order of shards, each shard once."""
        return pieces(self.files_of_rows(arm))

    def files_of_rows(self, arm: str) -> list[ShardFile]:
        return [file for folder in self.folders for file in folder.files_of_rows(arm)]

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

    def finished_shards(self, arm: str) -> set[int]:
        return set().union(*(folder.finished_shards(arm) for folder in self.folders))

    @property
    def missing(self) -> int:
        """How many (arm, shard) files are still to be computed; 0 for a finished run."""
        shards = range(self.manifest["shards"])
        return sum(len(set(shards).difference(self.finished_shards(arm))) for arm in self.arms)


def open_files(where: RunPlace) -> RunFiles:
    """The files of a run, after comparing its parts, if it has several."""
    folders = part_folders(where)
    manifest = joined_manifest(folders)
    named = folders[0].path if is_several(where) else place(where)
    parts = tuple(folder.path for folder in folders)
    return RunFiles(named, manifest, () if parts == (named,) else parts)


def is_several(where: RunPlace) -> TypeGuard[Sequence[Place | str]]:
    """Whether folders are named one by one."""
    return isinstance(where, Sequence) and not isinstance(where, str)


def part_folders(where: RunPlace) -> list[RunFolder]:
    """The folders of a run. One without a manifest that holds run folders is a run in parts."""
    if is_several(where):
        if not where:
            raise SightlineError("no run folder given: name at least one")
        return [folder for one in where for folder in part_folders(one)]
    whole = RunFolder(place(where))
    if whole.exists:
        return [whole]
    if is_remote(whole.path):
        parts = [RunFolder(file.parent) for file in whole.files.matching(f"*/{MANIFEST}")]
    else:
        parts = [folder for folder in map(RunFolder, sorted(whole.files.within(""))) if folder.exists]
    return parts or [whole]


def joined_manifest(folders: Sequence[RunFolder]) -> dict[str, Any]:
    """One manifest of all parts; parts that do not belong together are refused with what differs."""
    manifests = [folder.manifest() for folder in folders]
    first = manifests[0]
    if len(folders) == 1:
        return first
    for folder, other in zip(folders[1:], manifests[1:], strict=True):
        _refuse_unfitting(folders[0], first, folder, other)
    arms = dict.fromkeys(arm for manifest in manifests for arm in manifest["arms"])
    merged: dict[str, dict[str, Any]] = {"set_aside": {}, "bad_images": {}, "inputs": {}, "imports": {}}
    for manifest in manifests:
        for field, entries in merged.items():
            entries |= manifest.get(field, {})
    all_values: dict[str, Any] = dict(first)
    for manifest in manifests[1:]:
        all_values |= {"mixed": with_all_values(all_values, manifest).get("mixed", {})}
    controls = dict.fromkeys(arm for manifest in manifests for arm in manifest.get("matched_controls", ()))
    return {
        **first,
        **({"mixed": all_values["mixed"]} if all_values["mixed"] else {}),
        **{field: entries for field, entries in merged.items() if entries or field in first},
        "arms": list(arms),
        "matched_controls": list(controls),
        "setup_ms": sum(manifest.get("setup_ms", 0.0) for manifest in manifests),
        "part": None,
    }


def _refuse_unfitting(one: RunFolder, manifest: dict[str, Any], other: RunFolder, others: dict[str, Any]) -> None:
    said = {**others, "shards": others.get("shards")}
    found = settings_difference(manifest, said, without=SEVERAL_MACHINES)
    difference = None if found is None else found[1]
    if difference is None and manifest.get("shards") != others.get("shards"):
        difference = f"with {manifest.get('shards')} shards, the other has {others.get('shards')}"
    if difference is not None:
        words = difference.replace("this command has", "the other has")
        raise SightlineError(f"{one.path} and {other.path} are not one run: the first is {words}")
    for arm, digest in manifest.get("inputs", {}).items():
        if others.get("inputs", {}).get(arm, digest) != digest:
            raise SightlineError(
                f"{one.path} and {other.path} are not one run: their rows of {arm} were made from other content of its "
                "file"
            )


def refuse_conflicts(folders: Sequence[RunFolder], arms: Sequence[str]) -> None:
    """Refuses a shard of an arm that two parts hold with different rows; timings may differ."""
    for arm in arms:
        holders: dict[int, tuple[RunFolder, ShardFile]] = {}
        for folder in folders:
            for file in folder.files_of_rows(arm):
                for shard in file.shards:
                    before = holders.setdefault(shard, (folder, file))
                    if before[0] is not folder and _values(*before, arm, shard) != _values(folder, file, arm, shard):
                        raise SightlineError(
                            f"{before[1].path} and {file.path} hold different rows of the same probes; "
                            "leave one of the two folders out"
                        )


def _values(folder: RunFolder, file: ShardFile, arm: str, shard: int) -> str:
    """The digest of a shard's rows, as the file says it."""
    _, mark = folder.owner(arm).opened(file)
    return next(held.values for held in mark.shards if held.shard == shard)


# A run folder with fewer files: shards of an arm in packs, image records likewise.
#
# A pack is written under its own name and compared before the files that it holds are removed, so that a kill at any
# moment leaves every row readable: what two files hold is read once. Going on with the run stays possible, since the
# name of a pack says which shards are done.


@dataclass(frozen=True)
class Compaction:
    """What became of a run's files."""

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


def compact_run(path: Place, out: Place | None = None) -> Compaction:
    """Packs the files of a run in its folder, or writes a packed copy elsewhere: of a run in parts, one whole run."""
    for where in (path, out):
        if where is not None and is_remote(where):
            raise SightlineError(f"cannot compact {where}: folders are compacted on a disk; copy it there first")
    run = open_files(path)
    before = _sizes(run.folders)
    if out is None:
        for folder in run.folders:
            _pack_in_place(RunFiles(folder.path, folder.manifest()))
        after = _sizes(run.folders)
    else:
        _write_copy(run, out)
        after = _sizes([RunFolder(out)])
    return Compaction(len(before), len(after), sum(before), sum(after))


def _sizes(folders: Sequence[RunFolder]) -> list[int]:
    return [
        file.stat().st_size
        for folder in folders
        for part in ("rows", "images")
        for file in (folder.path / part).rglob("*.parquet")
    ]


def _stocks(run: RunFiles) -> Iterator[tuple[Owner, str, list[ShardFile]]]:
    """The files of every arm, and of every version of the images: what they must say of themselves, their folder."""
    for arm in run.arms:
        yield run.owner(arm), f"rows/{arm_folder_name(arm)}", run.files_of_rows(arm)
    yield from ((run.owner(), "images", files) for files in run.files_of_images())


def _pack_in_place(run: RunFiles) -> None:
    model = model_words(run.manifest)
    for owner, _, files in _stocks(run):
        found = pieces(files)
        for group in pack_groups(found, owner):
            if len(group) > 1:
                write_pack(group, owner, group[0].file.path.parent, model)
                for piece in group:
                    piece.file.path.unlink()
        _remove_repeated(files, found, owner)


def _remove_repeated(files: Sequence[ShardFile], found: Sequence[ShardPiece], owner: Owner) -> None:
    """Removes what a kill left beside the pack that holds it, if it says the same."""
    used = {piece.file for piece in found}
    packed = {held.shard: held for piece in found if piece.file.path.exists() for held in held_shards(piece, owner)}
    for file in files:
        if file not in used and file.path.exists():
            own = held_shards(ShardPiece(file, file.first, file.last), owner)
            if all(packed.get(held.shard) == held for held in own):
                file.path.unlink()


def _write_copy(run: RunFiles, out: Path) -> None:
    """Beside its place first: the copy gets its name when it is whole."""
    refuse_unusable_place(out)
    if out.exists() and any(out.iterdir()):
        raise SightlineError(f"{out} exists and is not empty; choose another --out")
    building = out.with_name(f".{out.name}.compacting")
    shutil.rmtree(building, ignore_errors=True)
    for name in ("rows", "images"):
        make_folder(building / name)
    model = model_words(run.manifest)
    for owner, name, files in _stocks(run):
        for group in pack_groups(pieces(files), owner):
            write_pack(group, owner, building / name, model)
    with open(run.probe_file, "rb") as probes, whole_file(building / PROBES) as handle:
        shutil.copyfileobj(probes, handle)
    write_whole(building / MANIFEST, manifest_bytes(run.manifest))
    if out.exists():
        out.rmdir()
    os.rename(building, out)
