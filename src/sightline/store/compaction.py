"""A run folder with fewer files: shards of an arm in packs, image records likewise.

A pack is written under its own name and compared before the files that it holds are removed, so that a kill at any
moment leaves every row readable: what two files hold is read once. Going on with the run stays possible, since the name
of a pack says which shards are done.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sightline.errors import SightlineError
from sightline.places import Place, is_remote
from sightline.places.writing import make_folder, refuse_unusable_place, whole_file, write_whole
from sightline.store.folder import MANIFEST, PROBES, RunFolder, arm_folder_name, manifest_bytes
from sightline.store.manifest import model_words
from sightline.store.parts import RunFiles, open_files
from sightline.store.shard_files import Owner, ShardFile, ShardPiece, held_shards, pack_groups, pieces, write_pack


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
