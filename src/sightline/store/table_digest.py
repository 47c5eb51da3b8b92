"""A digest of what a table says, whatever chunks, buffers or encodings it is held in."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

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
