"""Names of shard files: one shard each (``00003.parquet``), or consecutive ones in a pack (``00000-00127.parquet``).

Image records of a version that an intervention shows have its name in theirs (``00003.blank.parquet``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sightline.core.row import TIME_COLUMNS
from sightline.errors import SightlineError
from sightline.places import Place, told_of
from sightline.places.writing import make_folder, whole_file
from sightline.store.marks import DamagedError, Mark, MarkedShard, read_marked, table_digest, texts_digest, write_marked

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


# Shard files opened with their mark compared: nothing damaged, and nothing of another run, is taken for rows.

BATCH = 65_536
"""Rows that are held at once where files are read in batches."""


def read_shard(path: Place, *, footer_alone: bool = False) -> tuple[pq.ParquetFile, Mark]:
    """A shard file and its mark, without which it is damaged."""
    parquet, mark = read_marked(path, must_be_marked=True, footer_alone=footer_alone)
    assert mark is not None
    return parquet, mark


@dataclass(frozen=True)
class Owner:
    """What the files of an arm, or image records, must say of themselves."""

    path: Place
    """The run folder, for messages."""
    run: str
    arm: str | None = None
    """None of image records."""

    def problem(self, file: ShardFile, mark: Mark) -> str:
        """Why a file does not belong here; "" where it does."""
        what = "image records" if self.arm is None else "rows"
        if mark.run != self.run:
            return f"holds {what} of another run, of {mark.model}"
        if mark.arm != self.arm or (self.arm is None and mark.version != file.version):
            told = f"rows of {mark.arm}" if mark.arm is not None else f"image records {mark.version}".rstrip()
            return f"holds {told}, not {what} of {self.arm or 'this version'}"
        held = [shard.shard for shard in mark.shards]
        if held != list(file.shards):
            return f"holds shard{'s' * (len(held) != 1)} {_span(held)}, as its name does not say"
        return ""

    def opened(self, file: ShardFile, *, footer_alone: bool = False) -> tuple[pq.ParquetFile, Mark]:
        """The file, or one line that says what is wrong with it and how to go on.

        ``footer_alone`` leaves its checksum to others, for whoever cannot wait until all of it has been read.
        """
        try:
            parquet, mark = read_shard(file.path, footer_alone=footer_alone)
        except DamagedError as error:
            raise SightlineError(self.line(file, f"is damaged ({error})")) from None
        if problem := self.problem(file, mark):
            raise SightlineError(self.line(file, problem))
        return parquet, mark

    def line(self, file: ShardFile, problem: str) -> str:
        """What is wrong with a file, and how to go on."""
        return (
            f"{file.path} {problem}; set it aside with `sightline verify {self.path} --repair` "
            "and run the same command again"
        )

    def read(self, piece: ShardPiece, columns: list[str] | None = None) -> pa.Table:
        """The rows of a piece, or only some of their columns."""
        parquet, mark = self.opened(piece.file)
        with self._naming(piece.file):
            table = parquet.read(columns=columns).replace_schema_metadata(None)
        start, stop = bounds(piece, mark, table.num_rows)
        return table.slice(start, stop - start)

    def batches(self, piece: ShardPiece, columns: list[str] | None = None, rows: int = BATCH) -> Iterator[pa.Table]:
        """The same in batches, so that a file of any size fits into memory."""
        yield from self.batches_of(self.opened(piece.file), piece, columns, rows)

    def batches_of(
        self,
        opened: tuple[pq.ParquetFile, Mark],
        piece: ShardPiece,
        columns: list[str] | None = None,
        rows: int = BATCH,
    ) -> Iterator[pa.Table]:
        """The same of a file that is open already."""
        parquet, mark = opened
        start, stop = bounds(piece, mark, parquet.metadata.num_rows)
        place = 0
        with self._naming(piece.file):
            for batch in parquet.iter_batches(rows, columns=columns, use_threads=False):
                first, last = max(start, place), min(stop, place + batch.num_rows)
                if first < last:
                    table = pa.Table.from_batches([batch.slice(first - place, last - first)])
                    yield table.replace_schema_metadata(None)
                place += batch.num_rows

    @contextmanager
    def _naming(self, file: ShardFile) -> Iterator[None]:
        """Errors of reading become one line that names the file."""
        try:
            with told_of(file.path, "read"):
                yield
        except (pa.ArrowException, OSError) as error:
            line = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise SightlineError(self.line(file, f"cannot be read ({line})")) from None


def bounds(piece: ShardPiece, mark: Mark, rows: int) -> tuple[int, int]:
    """(start, stop) of a piece's rows within its file."""
    return (0, rows) if piece.whole else mark.within(piece.first, piece.last)


def _span(shards: list[int]) -> str:
    return f"{shards[0]}" if len(shards) == 1 else f"{shards[0]} to {shards[-1]}" if shards else "none"


# Small tables put together into larger ones, so that work per table is not done per shard.


def in_batches(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
    """The same rows in the same order, in tables of exactly so many; the last may be shorter."""
    held: list[pa.Table] = []
    count = 0
    for table in tables:
        while count + table.num_rows >= rows:
            taken = rows - count
            yield pa.concat_tables([*held, table.slice(0, taken)])
            held, count, table = [], 0, table.slice(taken)
        if table.num_rows:
            held.append(table)
            count += table.num_rows
    if held:
        yield pa.concat_tables(held)


# Shard files put together into fewer and larger ones, and taken apart again. Rows stay bit for bit what they were.

GROUP = 65_536
"""Most rows of a row group: what a reader of one holds at once."""
PACK = 500_000
"""Most rows of a pack, unless one shard has more."""


def held_shards(piece: ShardPiece, owner: Owner) -> list[MarkedShard]:
    """What a piece holds, shard by shard."""
    _, mark = owner.opened(piece.file)
    return [held for held in mark.shards if piece.first <= held.shard <= piece.last]


def held_of(table: pa.Table, shard: int, arm: str | None) -> MarkedShard:
    """What a mark says of the rows of an arm in a shard, or of image records."""
    about, aside = ("image_key", ()) if arm is None else ("probe_id", TIME_COLUMNS)
    texts: list[Any] = table.column(about).to_pylist() if about in table.column_names else [None]
    if not all(isinstance(text, str) for text in texts):
        raise DamagedError(f"its column '{about}' does not hold a text in every row")
    return MarkedShard(shard, table.num_rows, texts_digest(texts), table_digest(table, without=aside))


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
    held = [each for piece in group for each in held_shards(piece, owner)]
    parquet, _ = owner.opened(group[0].file)
    make_folder(folder)
    mark = Mark(owner.run, model, owner.arm, version, tuple(held))
    with whole_file(path) as handle:
        rows = (table for piece in group for table in owner.batches(piece, rows=GROUP))
        write_marked(handle, parquet.schema_arrow, in_batches(rows, GROUP), mark, GROUP)
    read_shard(path)
    return path


def unpack(file: ShardFile, owner: Owner, *, without: int | None = None) -> None:
    """Writes every shard of a pack as a file of its own, but for one; the pack itself stays."""
    parquet, mark = owner.opened(file)
    for held in mark.shards:
        if held.shard != without:
            table = owner.read(ShardPiece(file, held.shard, held.shard))
            with whole_file(file.path.with_name(shard_file_name(held.shard, version=file.version))) as handle:
                write_marked(handle, parquet.schema_arrow, [table], replace(mark, shards=(held,)))
