"""Names of shard files: one shard each (``00003.parquet``), or consecutive ones in a pack (``00000-00127.parquet``).

Image records of a version that an intervention shows have its name in theirs (``00003.blank.parquet``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from sightline.places import Place

_NAME = re.compile(r"(\d+)(?:-(\d+))?(?:\.(.+))?\.parquet")


@dataclass(frozen=True)
class ShardFile:
    """A file and the shards that its name says it holds."""

    path: Place
    first: int
    last: int
    version: str = ""
    """Of images, the version they show; "" for the original, and for rows."""

    @property
    def shards(self) -> range:
        return range(self.first, self.last + 1)

    @property
    def packed(self) -> bool:
        return "-" in self.path.name.partition(".")[0]


def shard_file_name(first: int, last: int | None = None, version: str = "") -> str:
    """``last`` makes it the name of a pack."""
    span = f"{first:05d}" if last is None else f"{first:05d}-{last:05d}"
    return f"{span}.{version}.parquet" if version else f"{span}.parquet"


def shard_file(path: Place) -> ShardFile | None:
    """What a name says; None for the name of something else."""
    found = _NAME.fullmatch(path.name)
    if found is None:
        return None
    first, last, version = found.groups()
    return ShardFile(path, int(first), int(first if last is None else last), version or "")


def shard_files(listed: Iterable[Place]) -> list[ShardFile]:
    """Those among the files of a folder, in the order of their shards, a pack before what it holds."""
    return sorted(filter(None, map(shard_file, listed)), key=lambda file: (file.first, -file.last, file.path.name))


def is_packed(listed: Iterable[Place], shard: int, version: str = "") -> bool:
    """Whether some pack among the files of a folder holds a shard."""
    return any(file.packed and shard in file.shards and file.version == version for file in shard_files(listed))


@dataclass(frozen=True)
class ShardPiece:
    """Consecutive shards of one file: all of it, or those that no file before it has."""

    file: ShardFile
    first: int
    last: int

    @property
    def whole(self) -> bool:
        return (self.first, self.last) == (self.file.first, self.file.last)


def pieces(files: Iterable[ShardFile]) -> list[ShardPiece]:
    """Every shard once, in order: of files that hold the same shard, the one that comes first."""
    owners: dict[int, ShardFile] = {}
    for file in files:
        for shard in file.shards:
            owners.setdefault(shard, file)
    found: list[ShardPiece] = []
    for shard in sorted(owners):
        before = found[-1] if found else None
        if before is not None and before.file is owners[shard] and before.last == shard - 1:
            found[-1] = ShardPiece(before.file, before.first, shard)
        else:
            found.append(ShardPiece(owners[shard], shard, shard))
    return found
