"""Reading and writing the text files of the probes step: plain or gzip, line by line, never half written."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from sightline.errors import SightlineError
from sightline.places import Place, is_remote, open_file, place, read_whole
from sightline.places.writing import write_whole

_GZIP_MAGIC = b"\x1f\x8b"


@contextmanager
def open_text(path: str | Place) -> Iterator[IO[str]]:
    """Opens a UTF-8 file or object, decompressing it if its first bytes say gzip. Failures name the file."""
    where = place(path)
    try:
        with _opened(where) as raw:
            packed = raw.read(2) == _GZIP_MAGIC
            raw.seek(0)
            binary: Any = gzip.GzipFile(fileobj=raw) if packed else raw
            with io.TextIOWrapper(binary, encoding="utf-8") as stream:
                yield stream
    except UnicodeDecodeError as problem:
        raise SightlineError(f"{path}: not UTF-8 text ({problem.reason} at byte {problem.start})") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise SightlineError(f"{path}: damaged gzip file: {problem}") from None
    except OSError as problem:
        absent = isinstance(problem, FileNotFoundError) and is_remote(where)
        reason = "there is no such object" if absent else problem.strerror or problem
        raise SightlineError(f"{path}: cannot be read: {reason}") from None


def _opened(where: Place) -> IO[bytes]:
    """An object is fetched as a whole, since its lines are all read anyway."""
    if not is_remote(where):
        return open_file(where)
    return io.BytesIO(read_whole(where))


def read_objects(path: str | Place) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line number, object) for every line that is not blank."""
    with open_text(path) as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as problem:
                raise SightlineError(f"{path} line {number}: not JSON: {problem}") from None
            if not isinstance(row, dict):
                raise SightlineError(f"{path} line {number}: expected a JSON object, found {type(row).__name__}")
            yield number, row


def file_digest(path: str | Path) -> str:
    """``sha256:`` of the file's bytes."""
    try:
        with open_file(path) as stream:
            return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"
    except OSError as problem:
        raise SightlineError(f"{path}: cannot be read: {problem.strerror or problem}") from None


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file whole, and makes the folder it is in. ``.gz`` is compressed."""
    path = Path(path)
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        raise SightlineError(f"{path}: cannot be written: a text holds half of a surrogate pair") from None
    write_whole(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data, make_parent=True)
