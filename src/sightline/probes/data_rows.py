"""Rows of published data: parquet in shards, a JSON document, JSON lines or a table, one after the other.

Parquet holds images, so it is read a few rows at a time: no more of them are in memory at once.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from sightline.core.text import as_text, from_text
from sightline.errors import SightlineError, first_line
from sightline.places.listing import Place, file_errors, is_remote, open_file, place, read_whole
from sightline.places.writing import write_whole

# Files that come from anywhere: read whole within a bound, unpacked if gzip, decoded by their byte-order mark.

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
        return "\n".join((PARQUET.decode(), *parquet_columns(Path(path))))
    return data.decode(encoding_of(data), errors="replace")[:characters]


def encoding_of(data: bytes) -> str:
    """What the byte-order mark says; UTF-8 without one."""
    return next((encoding for mark, encoding in _MARKS if data.startswith(mark)), "utf-8")


def decoded(path: Path, limit: int = MAX_BYTES, encoding: str | None = None, hint: str = "") -> str:
    """The whole file as text; ``hint`` says what to do where it is no text of this encoding."""
    data = read_bytes(path, limit)
    encoding = encoding or encoding_of(data)
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as problem:
        said = f"{problem.reason} at byte {problem.start}"
        raise SightlineError(f"{path}: not {encoding} text ({said}){hint}") from None
    except LookupError:
        raise SightlineError(f"{path}: there is no encoding called {encoding}{hint}") from None


def read_json(path: str | Place) -> Any:
    """A JSON document, in whatever encoding of Unicode it is."""
    data = _head(path)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as problem:
        raise SightlineError(f"{path}: not a JSON document: {problem}") from None


def _head(path: str | Place, count: int = -1) -> bytes:
    """Up to ``count`` bytes of the unpacked file; all without one."""
    with _unpacked(path) as stream:
        data: bytes = stream.read(count)
        return data


# Reading and writing the text files of the probes step: plain or gzip, line by line, never half written.


@contextmanager
def open_text(path: str | Place) -> Iterator[IO[str]]:
    """Opens a UTF-8 file or object, decompressing it if its first bytes say gzip. Failures name the file."""
    with _unpacked(path) as raw, io.TextIOWrapper(raw, encoding="utf-8") as stream:
        yield stream


@contextmanager
def _unpacked(path: str | Place) -> Iterator[Any]:
    """The bytes of a file, or of an object, which is fetched as a whole, since it is all read anyway."""
    where = place(path)
    try:
        with io.BytesIO(read_whole(where)) if is_remote(where) else open_file(where) as raw:
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            yield gzip.GzipFile(fileobj=raw) if packed else raw
    except UnicodeDecodeError as problem:
        raise SightlineError(f"{path}: not UTF-8 text ({problem.reason} at byte {problem.start})") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as problem:
        raise SightlineError(f"{path}: damaged gzip file: {problem}") from None
    except OSError as problem:
        absent = isinstance(problem, FileNotFoundError) and is_remote(where)
        reason = "there is no such object" if absent else problem.strerror or problem
        raise SightlineError(f"{path}: cannot be read: {reason}") from None


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
                raise SightlineError(f"{path} line {number}: expected a JSON object")
            yield number, row


def read_table(path: Path) -> list[dict[str, Any]]:
    """The rows of a CSV table in UTF-8, by the names of its first line."""
    try:
        with file_errors(f"cannot read {path}"), open_file(path) as raw:
            return list(csv.DictReader(io.TextIOWrapper(raw, encoding="utf-8", newline="")))
    except (UnicodeDecodeError, csv.Error) as problem:
        raise SightlineError(f"cannot read {path}: it is no CSV table in UTF-8 ({problem})") from None


def csv_text(rows: Iterable[Mapping[str, Any]], columns: Iterable[str] = ()) -> str:
    """A CSV table with some columns, then all others that its rows have, which a spreadsheet opens as it is: no cell is
    a formula there."""
    rows = list(rows)
    text = io.StringIO()
    if columns := list(dict.fromkeys([*columns, *(name for row in rows for name in row)])):
        table = csv.DictWriter(text, columns, lineterminator="\n")
        table.writeheader()
        table.writerows({name: as_text(cell) for name, cell in row.items()} for row in rows)
    return text.getvalue()


def read_csv_text(path: Path) -> list[dict[str, Any]]:
    """The rows of a table that ``csv_text`` made, with every text as it was."""
    rows = read_table(path)
    return [{name: from_text(cell) if isinstance(cell, str) else cell for name, cell in row.items()} for row in rows]


def file_digest(path: str | Path) -> str:
    """``sha256:`` of the file's bytes."""
    with file_errors(f"{path}: cannot be read"), open_file(path) as stream:
        return f"sha256:{hashlib.file_digest(stream, 'sha256').hexdigest()}"


def write_text(path: str | Path, text: str) -> None:
    """Writes a text file whole, and makes the folder it is in. ``.gz`` is compressed."""
    path = Path(path)
    try:
        data = text.encode("utf-8")
    except UnicodeEncodeError:
        raise SightlineError(f"{path}: cannot be written: a text holds half of a surrogate pair") from None
    write_whole(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data, make_parent=True)


BATCH = 16
"""Rows of a parquet file that are held at once."""
DELIMITERS = ",;\t|"


class DataRow(NamedTuple):
    """One row, where it stands, and how many rows of all files come before it."""

    where: str
    number: int
    cells: Mapping[str, Any]


def data_rows(files: Sequence[Path], needed: Sequence[Sequence[str]]) -> Iterator[DataRow]:
    """The rows of all files, in the order of the files.

    Parameters
    ----------
    needed: columns that a file must have, each as the names that it may go by. They are looked for in the columns of
        a table, or in the first object of a JSON file; a later object may lack them.
    """
    number = 0
    for file in files:
        for index, (where, cells) in enumerate(_rows(file)):
            if index == 0:
                _refuse_other_columns(file, list(cells), needed)
            yield DataRow(f"{file} {where}", number, cells)
            number += 1


def parquet_columns(file: Path) -> list[str]:
    """Names of the columns, from the end of the file; no row is read."""
    from pyarrow import ArrowException
    from pyarrow.parquet import read_schema

    try:
        return list(read_schema(file).names)
    except (ArrowException, OSError) as problem:
        raise SightlineError(f"{file}: damaged parquet file: {first_line(problem)}") from None


def table_delimiter(start: str, *columns: str) -> str | None:
    """The delimiter under which the first line of a table names all these columns; None if there is none."""
    return next((each for each in DELIMITERS if set(columns) <= set(column_names(start, each))), None)


def named_columns(start: str) -> list[str]:
    """The columns of a file that begins like a table or like parquet; none where it is neither."""
    mark, *found = start.splitlines() or [""]
    if mark == PARQUET.decode():
        return found
    tables = (column_names(start, delimiter) for delimiter in DELIMITERS)
    return next((names for names in tables if len(names) > 1 and all(map(str.isidentifier, names))), [])


def column_names(text: str, delimiter: str) -> list[str]:
    """The first line's cells without case, blanks as underscores; none where it is no line of a table."""
    try:
        first = next(csv.reader([text.lstrip("\ufeff").partition("\n")[0]], delimiter=delimiter), [])
    except csv.Error:
        return []
    return [name.strip().lstrip("\ufeff").lower().replace(" ", "_").replace("-", "_") for name in first]


def table_rows(file: Path, text: str, delimiter: str) -> Iterator[tuple[str, Mapping[str, str]]]:
    """(place, cells by the name of their column) for every line below the first that is not empty."""
    names = column_names(text, delimiter)
    table = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        next(table, None)
        for cells in table:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(names):
                raise SightlineError(f"{file} line {table.line_num}: {len(cells)} cells under {len(names)} columns")
            yield f"line {table.line_num}", dict(zip(names, cells, strict=True))
    except csv.Error as problem:
        raise SightlineError(f"{file} line {table.line_num}: not a table: {problem}") from None


def _rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(place, cells) by the kind of file that it is, which is seen from its first characters."""
    if _head(file, len(PARQUET)) == PARQUET:
        return _parquet_rows(file)
    start = start_of(file, 4096).lstrip("\ufeff \t\r\n")
    if start.startswith("["):
        return _document_rows(file)
    if start.startswith("{"):
        if _begins_with_a_line(file):
            return ((f"line {number}", cells) for number, cells in read_objects(file))
        return _document_rows(file)
    delimiter = table_delimiter(start, "question")
    if "\n" in start and delimiter is not None:
        return table_rows(file, decoded(file), delimiter)
    raise SightlineError(f"{file}: neither parquet nor JSON nor a table whose first line names a column 'question'")


def _parquet_rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    number = 0
    try:
        with ParquetFile(file) as table:
            if table.metadata.num_rows == 0:
                raise SightlineError(f"{file}: holds no rows")
            for group in range(table.num_row_groups):  # asked for at once, all of them would be read ahead
                for batch in table.iter_batches(batch_size=BATCH, row_groups=[group]):
                    for cells in batch.to_pylist():
                        number += 1
                        yield f"row {number}", cells
    except (ArrowException, OSError) as problem:
        raise SightlineError(f"{file}: damaged parquet file: {first_line(problem)}") from None


def _document_rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A list of objects, or an object that has one under ``data``."""
    document = read_json(file)
    rows = document.get("data") if isinstance(document, dict) else document
    if not isinstance(rows, list) or not rows:
        raise SightlineError(f"{file}: needs a list of questions, or an object with one under 'data'")
    for number, cells in enumerate(rows, start=1):
        if not isinstance(cells, dict):
            raise SightlineError(f"{file} row {number}: expected an object")
        yield f"row {number}", cells


def _refuse_other_columns(file: Path, found: Sequence[str], needed: Sequence[Sequence[str]]) -> None:
    for names in needed:
        if not set(names) & set(found):
            wanted = " or ".join(names)
            raise SightlineError(f"{file}: has no column {wanted}; found {', '.join(map(str, found)) or 'none'}")


def _begins_with_a_line(file: Path) -> bool:
    """Whether the first line is an object of its own, and not a whole document written on one line."""
    with open_text(file) as stream:
        first = next((line for line in stream if line.strip()), "")
        try:
            found = json.loads(first)
        except (ValueError, RecursionError):
            return False
    return isinstance(found, dict) and "data" not in found
