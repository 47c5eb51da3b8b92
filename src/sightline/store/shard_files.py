"""Shard files: what they are called, what each says of itself, and how they are opened, packed and taken apart.

A file holds one shard (``00003.parquet``), or consecutive ones in a pack (``00000-00127.parquet``). Image records of a
version that an intervention shows have its name in theirs (``00003.blank.parquet``).

Every file carries a mark, one entry of the parquet footer: whose run, which arm, which shards, and a checksum. That is
the SHA-256 of the whole file, taken while the place of the checksum holds zeros, so that nothing beside the file is
needed and every bit counts, the footer's and the mark's own included.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from io import BytesIO
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sightline.core.row import TIME_COLUMNS
from sightline.errors import SightlineError, first_line
from sightline.places.listing import Place, is_remote, open_ranges, read_whole, store_errors
from sightline.places.writing import whole_file

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


# What a file says of itself.

KEY = b"sightline"
_PLACE = b'{"sightline_checksum": "'
_UNKNOWN = "0" * 64
_CHUNK = 1 << 20


class MarkedShard(NamedTuple):
    """One shard within a file."""

    shard: int
    rows: int
    content: str
    """Digest of what it is about, in order: probe ids, or image keys."""
    values: str
    """Digest of all that it says, timings aside."""


@dataclass(frozen=True)
class Mark:
    """Whose file this is and what it holds."""

    run: str
    """Digest of the settings that all rows of a run share."""
    model: str
    arm: str | None
    """None of image records."""
    version: str
    """Of image records, the version of the images; "" for the original."""
    shards: tuple[MarkedShard, ...]

    def within(self, first: int, last: int) -> tuple[int, int]:
        """(start, stop) of the rows of some consecutive shards."""
        before = sum(held.rows for held in self.shards if held.shard < first)
        return before, before + sum(held.rows for held in self.shards if first <= held.shard <= last)


class DamagedError(Exception):
    """A file is not what it was when it was written; says how that shows."""


def write_marked(
    handle: BinaryIO, schema: pa.Schema, tables: Iterable[pa.Table], mark: Mark, group: int | None = None
) -> None:
    """Writes tables under one another, and the mark that holds of them, into an empty file that can be read back.

    ``group`` is the most rows of a row group; None: one per table.
    """
    # What was read from a file has that file's mark with it.
    with pq.ParquetWriter(handle, schema.remove_metadata(), compression="zstd") as writer:
        for table in tables:
            writer.write_table(table, row_group_size=group)
        facts = {"run": mark.run, "model": mark.model, "arm": mark.arm, "version": mark.version}
        said = json.dumps({"sightline_checksum": _UNKNOWN, **facts, "shards": mark.shards})
        writer.add_key_value_metadata({KEY.decode(): said})
    at = _checksum_at(handle)
    if at is None:
        raise DamagedError("its mark was not written")
    digest = _digest(handle, at)
    handle.seek(at)
    handle.write(digest.encode())


def _checksum_at(handle: BinaryIO) -> int | None:
    """Where the checksum stands: in the last entry of the footer, behind all statistics."""
    size = handle.seek(0, 2)
    handle.seek(max(0, size - 8))
    tail = handle.read(8)
    length = int.from_bytes(tail[:4], "little")
    if len(tail) < 8 or tail[4:] != b"PAR1" or length > size - 12:
        return None
    start = size - 8 - length
    handle.seek(start)
    found = handle.read(length).rfind(_PLACE)
    return None if found < 0 else start + found + len(_PLACE)


def _digest(handle: BinaryIO, at: int) -> str:
    """Of the whole file, with zeros in the place of the checksum."""
    digest = sha256()
    handle.seek(0)
    for size in (*[_CHUNK] * (at // _CHUNK), at % _CHUNK):
        digest.update(handle.read(size))
    digest.update(_UNKNOWN.encode())
    handle.seek(at + len(_UNKNOWN))
    while chunk := handle.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def read_shard(path: Place, *, footer_alone: bool = False) -> tuple[pq.ParquetFile, Mark]:
    """A shard file after comparing its checksum, and its mark; ``DamagedError`` where it is not what was written.

    ``footer_alone`` reads what the file says of itself and leaves the checksum alone. Of an object in a store that is
    as much as its footer is, and whatever is read later; else all of it in one request.
    """
    try:
        if footer_alone or not is_remote(path):
            if not footer_alone:
                with open(path, "rb") as handle:
                    _compare(handle)
            parquet = _opened(path)
        else:
            content = read_whole(path)
            _compare(BytesIO(content))
            parquet = pq.ParquetFile(pa.BufferReader(content))
        said: Mapping[bytes, bytes] = parquet.metadata.metadata or {}
        if KEY not in said:
            raise DamagedError("it does not say what it is")
        facts = json.loads(said[KEY])
        shards = tuple(MarkedShard(*held) for held in facts["shards"])
        return parquet, Mark(facts["run"], facts["model"], facts["arm"], facts["version"], shards)
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        raise DamagedError(first_line(error)) from error


def _opened(path: Place) -> pq.ParquetFile:
    """A file of which only what is asked for is read."""
    if is_remote(path):
        with store_errors(path, "read"):
            return pq.ParquetFile(open_ranges(path), pre_buffer=True)
    return pq.ParquetFile(pa.memory_map(str(path)))


def _compare(handle: BinaryIO) -> None:
    at = _checksum_at(handle)
    if at is None:
        raise DamagedError("it does not say what it is")
    handle.seek(at)
    if handle.read(len(_UNKNOWN)).decode("ascii", "replace") != _digest(handle, at):
        raise DamagedError("its content does not fit its checksum")


# Shard files opened with their mark compared: nothing damaged, and nothing of another run, is taken for rows.

BATCH = 65_536
"""Rows that are held at once where files are read in batches."""
SET_ASIDE = ".damaged"


@dataclass(frozen=True)
class Problem:
    """One line. A file that can be set aside, so that the next run computes it again, is named."""

    words: str
    file: Place | None = None

    def set_aside(self) -> Place | None:
        """Gives the file another name, under which nobody reads it."""
        if self.file is None:
            return None
        with store_errors(self.file, "rename"):
            if not self.file.exists():
                return None
            return self.file.rename(self.file.with_name(self.file.name + SET_ASIDE))


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
            return f"holds {_shards_said(held)}, as its name does not say"
        return ""

    def check(self, file: ShardFile, shards: int, *, footer_alone: bool = False) -> Mark | Problem:
        """What a file of a run of so many shards says of itself, or why it is not what belongs here."""
        try:
            _, mark = read_shard(file.path, footer_alone=footer_alone)
            problem = self.problem(file, mark)
        except (DamagedError, OSError, ValueError, KeyError, TypeError) as error:
            return Problem(f"{file.path} is damaged ({error})", file.path)
        if not problem and file.last >= shards:
            problem = f"holds shard {file.last} of a run that has {shards}"
        return Problem(f"{file.path} {problem}", file.path) if problem else mark

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
        with self.naming(piece.file):
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
        with self.naming(piece.file):
            for batch in parquet.iter_batches(rows, columns=columns, use_threads=False):
                first, last = max(start, place), min(stop, place + batch.num_rows)
                if first < last:
                    table = pa.Table.from_batches([batch.slice(first - place, last - first)])
                    yield table.replace_schema_metadata(None)
                place += batch.num_rows

    @contextmanager
    def naming(self, file: ShardFile) -> Iterator[None]:
        """Errors of reading become one line that names the file."""
        try:
            with store_errors(file.path, "read"):
                yield
        except (pa.ArrowException, OSError) as error:
            raise SightlineError(self.line(file, f"cannot be read ({first_line(error)})")) from None


def _shards_said(shards: Sequence[int]) -> str:
    if not shards:
        return "shards none"
    return f"shard {shards[0]}" if len(shards) == 1 else f"shards {shards[0]} to {shards[-1]}"


def bounds(piece: ShardPiece, mark: Mark, rows: int) -> tuple[int, int]:
    """(start, stop) of a piece's rows within its file."""
    return (0, rows) if piece.whole else mark.within(piece.first, piece.last)


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


def shard_mark(table: pa.Table, shard: int, arm: str | None) -> MarkedShard:
    """What a mark says of the rows of an arm in a shard, or of image records."""
    about, aside = ("image_key", ()) if arm is None else ("probe_id", TIME_COLUMNS)
    texts: list[Any] = table.column(about).to_pylist() if about in table.column_names else [None]
    if not all(isinstance(text, str) for text in texts):
        raise DamagedError(f"its column '{about}' does not hold a text in every row")
    return MarkedShard(shard, table.num_rows, texts_digest(texts), table_digest(table, without=aside))


def unpack(file: ShardFile, owner: Owner, *, without: int | None = None) -> None:
    """Writes every shard of a pack as a file of its own, but for one; the pack itself stays."""
    parquet, mark = owner.opened(file)
    for held in mark.shards:
        if held.shard != without:
            table = owner.read(ShardPiece(file, held.shard, held.shard))
            with whole_file(file.path.with_name(shard_file_name(held.shard, version=file.version))) as handle:
                write_marked(handle, parquet.schema_arrow, [table], replace(mark, shards=(held,)))


# A digest of what a table says, whatever chunks, buffers or encodings it is held in.

LENGTH = 32
"""Hexadecimal digits: 128 bits tell any two tables apart."""


def texts_digest(texts: Iterable[str]) -> str:
    return sha256("\n".join(texts).encode()).hexdigest()[:LENGTH]


def table_digest(table: pa.Table, without: Iterable[str] = ()) -> str:
    """Of names, types and values in order; some columns may be left out."""
    left_out, digest = set(without), sha256()
    for field, column in zip(table.schema, table.columns, strict=True):
        if field.name not in left_out:
            digest.update(f"{field.name}\n{_kind(field.type)}\n{len(column)}\n".encode())
            for buffer in _plain(pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)):
                digest.update(buffer)
    return digest.hexdigest()[:LENGTH]


def _kind(kind: pa.DataType) -> str:
    """A type in words. What the items of a list are called is a matter of who wrote them."""
    return f"list<{_kind(kind.value_type)}>" if pa.types.is_list(kind) else str(kind)


def _characters(array: pa.Array) -> bytes:
    """All values of a binary array without nulls behind one another."""
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return b""
    ends = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    return bytes(memoryview(data)[ends[0] : ends[-1]])


def _plain(array: pa.Array) -> Iterable[bytes]:
    """Which values there are, then the values, as bytes that do not depend on what lies under a null."""
    yield array.is_valid().cast(pa.uint8()).to_numpy(zero_copy_only=False).tobytes()
    kind = array.type
    if pa.types.is_list(kind):
        yield array.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).tobytes()
        yield from _plain(array.flatten())
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        filled = array.cast(pa.binary()).fill_null(b"")
        yield pc.binary_length(filled).to_numpy().tobytes()
        yield _characters(filled)
    elif pa.types.is_null(kind):
        return
    else:
        plain = array.cast(pa.uint8()) if pa.types.is_boolean(kind) else array
        yield plain.fill_null(0).to_numpy(zero_copy_only=False).tobytes()


# Masks and cells as the bytes that a run folder holds.


def unpack_mask(packed: bytes, n: int) -> np.ndarray:
    """(N,) bool from a row's bit-packed mask."""
    if len(packed) != (n + 7) // 8:
        raise SightlineError(
            f"a mask of {8 * len(packed)} bits stands beside an image of {n} cells: rows and images of the run folder "
            "do not belong together"
        )
    return np.unpackbits(np.frombuffer(packed, dtype=np.uint8), count=n).astype(bool)


def pack_mask(kept: np.ndarray) -> bytes:
    return np.packbits(kept.astype(bool)).tobytes()


def unpack_cells(packed: bytes) -> np.ndarray:
    """(N, 4) float32 from an image record."""
    return np.frombuffer(packed, dtype="<f4").reshape(-1, 4)
