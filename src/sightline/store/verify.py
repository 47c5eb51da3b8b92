"""Looking after a run folder: all that can be wrong with it, a line each, in bounded memory; and fewer files.

A file whose checksum holds says truly what it holds, so that its rows are compared with the probes by digests.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import file_digest, sha256
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sightline.core.row import cut_shards
from sightline.errors import SightlineError, first_line
from sightline.places.listing import Place, StoreError, is_remote, open_lines, read_whole, store_errors
from sightline.places.writing import make_folder, refuse_unusable_place, whole_file, whole_folder, write_whole
from sightline.probes.dialects import own_row, probe_from_own
from sightline.probes.probe_file import HEADER, canonical
from sightline.store.folder import MANIFEST, PROBES, RunFiles, RunFolder, arm_folder_name, open_files
from sightline.store.manifest import (
    CHECKSUM,
    OF_PROBES,
    Alike,
    count_settings,
    manifest_bytes,
    manifest_problem,
    mixture_words,
    model_words,
    read_manifest,
    settings_of,
    unnamed_settings,
)
from sightline.store.shard_files import (
    Mark,
    MarkedShard,
    Owner,
    Problem,
    ShardFile,
    ShardPiece,
    bounds,
    in_batches,
    pieces,
    read_shard,
    shard_file,
    shard_file_name,
    texts_digest,
    write_marked,
)

NAMED = 8
"""Shards that a line names; it counts the others."""


class Asked(NamedTuple):
    """What a shard must hold."""

    rows: int
    content: str
    """Digest of its probes' ids, in order."""


@dataclass
class Verified:
    """What was read of a folder, and what is wrong with it."""

    folder: RunFolder
    problems: list[Problem] = field(default_factory=list)
    files: int = 0
    rows: int = 0
    notes: list[str] = field(default_factory=list)
    """What is worth knowing and wrong with nothing."""
    alike: Counter[Alike] = field(default_factory=Counter)
    """How many rows say the same of how they were computed."""
    unrecorded: set[int] = field(default_factory=set)
    """Shards with rows about an image that has no record."""

    def wrong(self, words: str, file: Place | None = None) -> None:
        self.problems.append(Problem(words, file))


def verify_folder(path: Place) -> Verified:
    """Reads a whole run folder. What is still to be computed is a problem too: the run is not complete."""
    found = Verified(RunFolder(path))
    manifest = _manifest(found)
    if manifest is None:
        return found
    _checksum(found)
    asked = _asked(found, manifest)
    keys = _images(found, manifest)
    for arm in manifest["arms"]:
        _rows(found, manifest, arm, asked, keys)
    if found.unrecorded:
        found.wrong(f"{path / 'images'}: records of images of {_named(sorted(found.unrecorded))} are missing")
    _strangers(found, manifest)
    _mixture(found, manifest)
    return found


def _manifest(found: Verified) -> dict[str, Any] | None:
    path = found.folder.path / MANIFEST
    try:
        manifest = found.folder.manifest()
    except StoreError:
        raise
    except (SightlineError, OSError, UnicodeDecodeError, AttributeError, TypeError, ValueError) as error:
        found.wrong(str(error) if isinstance(error, SightlineError) else f"{path} cannot be read ({error})")
        return None
    if not manifest["arms"]:
        found.wrong(f"{path} names no arms")
        return None
    if manifest["shards"] < 1:
        found.wrong(f"{path} does not say how many shards there are")
        return None
    return manifest


def _checksum(found: Verified) -> None:
    """Whether the manifest is what was written, every bit of it."""
    path = found.folder.path
    stored = read_manifest(path / MANIFEST)
    if problem := manifest_problem(stored):
        found.wrong(f"{path / MANIFEST} is damaged: {problem}")
    elif CHECKSUM not in stored:
        found.notes.append(f"{path / MANIFEST} has no checksum, and was not compared with any")


def _mixture(found: Verified, manifest: Mapping[str, Any]) -> None:
    """What rows say of how they were computed: named where they differ, and compared with the manifest."""
    settings = settings_of(found.alike)
    if words := mixture_words(settings):
        found.notes.append(f"{found.folder.path}: {words}")
    for words in unnamed_settings(settings, manifest):
        found.wrong(f"{found.folder.path / MANIFEST} does not name {words}, which rows were computed with")


def _asked(found: Verified, manifest: Mapping[str, Any]) -> dict[int, Asked] | None:
    """What every shard must hold, told by the probes; None where they cannot tell."""
    path = found.folder.path / PROBES
    try:
        asked = _cut_probes(found, path, manifest)
    except StoreError:
        raise
    except (SightlineError, OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        found.wrong(f"{path} cannot be read ({first_line(error)})")
        return None
    if len(asked) != manifest["shards"]:
        found.wrong(f"{path} makes {len(asked)} shards, {MANIFEST} says {manifest['shards']}")
        return None
    return asked


def _cut_probes(found: Verified, path: Place, manifest: Mapping[str, Any]) -> dict[int, Asked]:
    """One pass over the probes, which stand in the order of shards: sizes of images, then ids in that order."""
    header: dict[str, Any] = {}
    digest = sha256()
    bad = set(manifest.get("bad_images", {}))

    def each() -> Iterator[tuple[str, str]]:
        """(image, id) of every probe; the id is empty where the image could not be read."""
        with store_errors(path, "read"), open_lines(path) as lines:
            for line in lines:
                record = json.loads(line) if line.strip() else {}
                if HEADER in record:
                    header.update(record)
                elif record:
                    probe = probe_from_own(record)
                    digest.update(canonical(own_row(probe)).encode() + b"\n")
                    yield repr((probe.image, probe.occlude)), "" if probe.image in bad else str(probe.id)

    asked = {}
    waiting: dict[int, list[str]] = {}

    def sizes() -> Iterator[int]:
        for image, (_, group) in enumerate(groupby(each(), key=lambda probe: probe[0])):
            waiting[image] = [name for _, name in group]
            yield len(waiting[image])

    for shard, cut in enumerate(cut_shards(sizes(), manifest["shard_images"], manifest.get("shard_probes"))):
        ids = [name for part in cut for name in waiting[part.image][part.start : part.stop] if name]
        asked[shard] = Asked(len(ids), texts_digest(ids))
        for part in cut:
            if part.stop == len(waiting[part.image]):
                del waiting[part.image]
    if header.get("digest") not in (None, f"sha256:{digest.hexdigest()}"):
        found.wrong(f"{path} does not hold the probes that its first line promises")
    elif (known := manifest.get(OF_PROBES)) and file_checksum(path) not in known:
        found.wrong(f"{path} does not fit its checksum in {MANIFEST}")
    return asked


def file_checksum(file: Place) -> str:
    """SHA-256 of all bytes of a file; one on a disk is not held in memory."""
    if is_remote(file):
        return sha256(read_whole(file)).hexdigest()
    with open(file, "rb") as handle:
        return file_digest(handle, "sha256").hexdigest()


def _held(found: Verified, file: ShardFile, owner: Owner, shards: int) -> tuple[MarkedShard, ...] | None:
    """What a file holds, shard by shard; None, and a line, where that is not what belongs here."""
    found.files += 1
    held = owner.check(file, shards)
    if isinstance(held, Problem):
        found.problems.append(held)
        return None
    return held.shards


def _images(found: Verified, manifest: Mapping[str, Any]) -> np.ndarray:
    """(I,) hashes of the keys of all image records, sorted."""
    owner = found.folder.owner()
    seen: dict[tuple[int, str], Place] = {}
    keys = [np.zeros(0, np.int64)]
    for file in found.folder.files_of_images():
        held = _held(found, file, owner, manifest["shards"])
        if held is None or _repeats(found, file, seen):
            continue
        for table in owner.batches(ShardPiece(file, file.first, file.last), ["image_key"]):
            keys.append(_hashes(table.column("image_key").unique().to_pylist()))
    return np.unique(np.concatenate(keys))


def _repeats(found: Verified, file: ShardFile, seen: dict[tuple[int, str], Place]) -> bool:
    """Notes which shards a file holds; a line, and True, where another holds one of them already."""
    twice = [shard for shard in file.shards if (shard, file.version) in seen]
    if twice:
        other = seen[twice[0], file.version]
        found.wrong(f"{file.path} holds {_named(twice)}, which {other.name} holds too", file.path)
        return True
    seen.update({(shard, file.version): file.path for shard in file.shards})
    return False


def _rows(
    found: Verified, manifest: Mapping[str, Any], arm: str, asked: Mapping[int, Asked] | None, keys: np.ndarray
) -> None:
    owner = found.folder.owner(arm)
    seen: dict[tuple[int, str], Place] = {}
    for file in found.folder.files_of_rows(arm):
        held = _held(found, file, owner, manifest["shards"])
        if held is None or _repeats(found, file, seen):
            continue
        found.rows += sum(each.rows for each in held)
        for each in held:
            wanted = each if asked is None else asked[each.shard]
            if each.rows != wanted.rows:
                words = f"has {each.rows} rows of shard {each.shard}, which has {wanted.rows} probes"
                found.wrong(f"{file.path} {words}", file.path)
            elif each.content != wanted.content:
                found.wrong(f"{file.path} answers other probes than those of shard {each.shard}", file.path)
        found.unrecorded |= _unrecorded(file, owner, held, keys)
        found.alike += count_settings(ShardPiece(file, file.first, file.last), owner)
    part = manifest.get("part")
    due = range(manifest["shards"]) if not part else range(part[0] - 1, manifest["shards"], part[1])
    missing = [shard for shard in due if (shard, "") not in seen]
    if missing:
        found.wrong(f"{found.folder.path}: {arm} lacks the rows of {_named(missing)}")


def _unrecorded(file: ShardFile, owner: Owner, held: Sequence[MarkedShard], keys: np.ndarray) -> set[int]:
    """Shards of a file with rows about an image that has no record."""
    ends, place, shards = np.cumsum([each.rows for each in held]), 0, set()
    for table in owner.batches(ShardPiece(file, file.first, file.last), ["image_key"]):
        coded = table.column("image_key").combine_chunks().dictionary_encode()
        unknown = ~np.isin(_hashes(coded.dictionary.to_pylist()), keys)
        if unknown.any():
            at = place + np.flatnonzero(unknown[coded.indices.to_numpy()])
            shards |= {held[which].shard for which in np.unique(np.searchsorted(ends, at, side="right"))}
        place += table.num_rows
    return shards


def _hashes(keys: Sequence[str]) -> np.ndarray:
    return np.array([hash(key) for key in keys], dtype=np.int64)


def _strangers(found: Verified, manifest: Mapping[str, Any]) -> None:
    """What lies among the rows and is none of the run's."""
    arms = {arm_folder_name(arm) for arm in (*manifest["arms"], *manifest.get("set_aside", {}))}
    below = (name.rstrip("@").split("/") for name in found.folder.files.everything())
    for name in sorted({parts[1] for parts in below if parts[0] == "rows" and parts[1:] not in ([], [""])}):
        if name not in arms:
            found.wrong(f"{found.folder.path / 'rows' / name} belongs to no arm of the run")
        else:
            _unreadable_names(found, f"rows/{name}")
    _unreadable_names(found, "images")


def _unreadable_names(found: Verified, below: str) -> None:
    for file in found.folder.files.matching(f"{below}/*.parquet"):
        if not file.name.startswith(".") and shard_file(file) is None:
            found.wrong(f"{file} does not have the name of a shard", file)


def _named(shards: Sequence[int]) -> str:
    shown = ", ".join(map(str, shards[:NAMED])) + (f" and {len(shards) - NAMED} more" if len(shards) > NAMED else "")
    return f"shard{'s' * (len(shards) > 1)} {shown}"


# A run folder with fewer files: shards of an arm in packs, image records likewise.
#
# A pack is written under its own name and compared before the files that it holds are removed, so that a kill at any
# moment leaves every row readable: what two files hold is read once. Going on with the run stays possible, since the
# name of a pack says which shards are done.


GROUP = 65_536
"""Most rows of a row group: what a reader of one holds at once."""
PACK = 500_000
"""Most rows of a pack, unless one shard has more."""


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
    packed = {held.shard: held for piece in found if piece.file.path.exists() for held in marked_shards(piece, owner)}
    for file in files:
        if file not in used and file.path.exists():
            own = marked_shards(ShardPiece(file, file.first, file.last), owner)
            if all(packed.get(held.shard) == held for held in own):
                file.path.unlink()


def _write_copy(run: RunFiles, out: Path) -> None:
    """Beside its place first: the copy gets its name when it is whole."""
    refuse_unusable_place(out)
    if out.exists() and any(out.iterdir()):
        raise SightlineError(f"{out} exists and is not empty; choose another --out")
    make_folder(out.parent)
    with whole_folder(out) as building:
        for name in ("rows", "images"):
            make_folder(building / name)
        model = model_words(run.manifest)
        for owner, name, files in _stocks(run):
            for group in pack_groups(pieces(files), owner):
                write_pack(group, owner, building / name, model)
        with open(run.probe_file, "rb") as probes, whole_file(building / PROBES) as handle:
            shutil.copyfileobj(probes, handle)
        write_whole(building / MANIFEST, manifest_bytes(run.manifest))


def marked_shards(piece: ShardPiece, owner: Owner) -> list[MarkedShard]:
    """What a piece holds, shard by shard."""
    _, mark = owner.opened(piece.file)
    return [held for held in mark.shards if piece.first <= held.shard <= piece.last]


def pack_groups(found: Iterable[ShardPiece], owner: Owner) -> list[list[ShardPiece]]:
    """Which pieces make a pack: neighbours with the same columns, up to so many rows. Packing twice changes nothing."""
    groups: list[list[ShardPiece]] = []
    rows, columns = 0, None
    for piece in found:
        parquet, mark = owner.opened(piece.file)
        schema = parquet.schema_arrow.remove_metadata()
        start, stop = bounds(piece, mark, parquet.metadata.num_rows)
        own = stop - start
        neighbour = bool(groups) and groups[-1][-1].last + 1 == piece.first
        alike = schema.equals(columns) if columns is not None else False
        if neighbour and alike and rows + own <= PACK:
            groups[-1].append(piece)
            rows += own
        else:
            groups.append([piece])
            rows, columns = own, schema
    return groups


def write_pack(group: Sequence[ShardPiece], owner: Owner, folder: Place, model: str) -> Place:
    """One file of all rows of some neighbouring pieces. It is whole or absent, and compared before its path is told."""
    version = group[0].file.version
    first, last = group[0].first, group[-1].last
    path = folder / shard_file_name(first, None if first == last else last, version)
    held = [each for piece in group for each in marked_shards(piece, owner)]
    parquet, _ = owner.opened(group[0].file)
    make_folder(folder)
    mark = Mark(owner.run, model, owner.arm, version, tuple(held))
    with whole_file(path) as handle:
        rows = (table for piece in group for table in owner.batches(piece, rows=GROUP))
        write_marked(handle, parquet.schema_arrow, in_batches(rows, GROUP), mark, GROUP)
    read_shard(path)
    return path
