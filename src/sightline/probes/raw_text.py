"""Files that come from anywhere: read whole within a bound, unpacked if gzip, decoded by their byte-order mark."""

from __future__ import annotations

import codecs
import gzip
import zlib
from pathlib import Path

from sightline.errors import SightlineError
from sightline.places import open_file

MAX_BYTES = 512 * 2**20
"""Of one annotation file, unpacked."""

_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def read_bytes(path: str | Path, limit: int = MAX_BYTES) -> bytes:
    """The whole file, unpacked if it is gzip. No more than ``limit`` bytes are ever held; a larger file is refused."""
    data = _head(path, limit + 1)
    if len(data) > limit:
        raise SightlineError(f"{path}: holds more than {limit // 2**20} MiB; split it into smaller files")
    return data


PARQUET = b"PAR1"
"""What every parquet file begins with."""


def start_of(path: str | Path, characters: int) -> str:
    """How the file begins, as text; what cannot be decoded is replaced, since this is only looked at.

    A parquet file says what it holds at its end: of such a file the names of its columns, one a line below ``PAR1``.
    """
    data = _head(path, 4 * characters)
    if data.startswith(PARQUET):
        from sightline.probes.data_rows import parquet_columns

        return "\n".join((PARQUET.decode(), *parquet_columns(Path(path))))
    return data.decode(encoding_of(data), errors="replace")[:characters]


def encoding_of(data: bytes) -> str:
    """What the byte-order mark says; UTF-8 without one."""
    return next((encoding for mark, encoding in _MARKS if data.startswith(mark)), "utf-8")


def _head(path: str | Path, count: int) -> bytes:
    """Up to ``count`` bytes of the unpacked file."""
    try:
        with open_file(path) as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            if not packed:
                return raw.read(count)
            with gzip.GzipFile(fileobj=raw) as stream:
                return stream.read(count)
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise SightlineError(f"{path}: damaged gzip file: {problem}") from None
    except OSError as problem:
        raise SightlineError(f"{path}: cannot be read: {problem.strerror or problem}") from None
