"""What every shard file says of itself: whose run, which arm, which shards, and a checksum over all of its bytes.

The mark is one entry of the parquet footer. Its checksum is the SHA-256 of the whole file, taken while the place of the
checksum holds zeros, so that nothing beside the file is needed and every bit counts, the footer's and the mark's own
included. Files of earlier releases have no mark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sightline.errors import SightlineError
from sightline.places import Place, is_remote, open_ranges, read_whole, told_of

KEY = b"sightline"
_OTHER_KEYS = {b"ARROW:schema", b"pandas"}
"""What a file without a mark may have in its footer."""
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

    def rows_before(self, shard: int) -> int:
        return sum(held.rows for held in self.shards if held.shard < shard)

    def within(self, first: int, last: int) -> tuple[int, int]:
        """(start, stop) of the rows of some consecutive shards."""
        return self.rows_before(first), self.rows_before(last + 1)


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
        writer.add_key_value_metadata({KEY.decode(): _text(mark)})
    at = _checksum_at(handle)
    if at is None:
        raise DamagedError("its mark was not written")
    digest = _digest(handle, at)
    handle.seek(at)
    handle.write(digest.encode())


def _text(mark: Mark) -> str:
    facts = {"run": mark.run, "model": mark.model, "arm": mark.arm, "version": mark.version}
    return json.dumps({"sightline_checksum": _UNKNOWN, **facts, "shards": mark.shards})


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
    for part in (at, len(_UNKNOWN), None):
        if part == len(_UNKNOWN):
            handle.read(part)
            digest.update(_UNKNOWN.encode())
            continue
        left = part
        while chunk := handle.read(_CHUNK if left is None else min(_CHUNK, left)):
            digest.update(chunk)
            left = None if left is None else left - len(chunk)
            if left == 0:
                break
    return digest.hexdigest()


def read_marked(
    path: Place, *, must_be_marked: bool = False, footer_alone: bool = False
) -> tuple[pq.ParquetFile, Mark | None]:
    """Opens a shard file after comparing its checksum; raises ``DamagedError`` where it is not what was written.

    A file without a mark is one of an earlier release, unless the run it belongs to has none of those. ``footer_alone``
    reads what the file says of itself and leaves the checksum alone.
    """
    try:
        file = _opened_object(path, footer_alone) if is_remote(path) else _opened_file(path, footer_alone)
        entries: Mapping[bytes, bytes] = file.metadata.metadata or {}
        if KEY not in entries and (must_be_marked or not _OTHER_KEYS.issuperset(entries)):
            raise DamagedError("it does not say what it is")
        return file, _mark(json.loads(entries[KEY])) if KEY in entries else None
    except (pa.ArrowException, OSError, ValueError, TypeError, KeyError) as error:
        raise DamagedError(str(error).splitlines()[0] if str(error) else type(error).__name__) from error


def _opened_file(path: Path, footer_alone: bool) -> pq.ParquetFile:
    if not footer_alone:
        with path.open("rb") as handle:
            _compare(handle)
    return pq.ParquetFile(pa.memory_map(str(path)))


def _opened_object(path: Place, footer_alone: bool) -> pq.ParquetFile:
    """All of an object in one request; of its footer alone, as much as that is and whatever is read later."""
    assert is_remote(path)
    if footer_alone:
        with told_of(path, "read"):
            return pq.ParquetFile(open_ranges(path), pre_buffer=True)
    content = read_whole(path)
    _compare(BytesIO(content))
    return pq.ParquetFile(pa.BufferReader(content))


def _compare(handle: BinaryIO) -> None:
    at = _checksum_at(handle)
    if at is not None and _read_at(handle, at).decode("ascii", "replace") != _digest(handle, at):
        raise DamagedError("its content does not fit its checksum")


def stored_columns(path: Place) -> list[str]:
    """The names of a file's columns, read from its footer."""
    if not is_remote(path):
        return list(pq.read_schema(path).names)
    return list(_opened_object(path, footer_alone=True).schema_arrow.names)


def _read_at(handle: BinaryIO, at: int) -> bytes:
    handle.seek(at)
    return handle.read(len(_UNKNOWN))


def _mark(facts: Mapping[str, Any]) -> Mark:
    shards = tuple(MarkedShard(*held) for held in facts["shards"])
    return Mark(facts["run"], facts["model"], facts["arm"], facts["version"], shards)


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
