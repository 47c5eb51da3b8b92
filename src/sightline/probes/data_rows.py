"""Rows of published data: parquet in shards, a JSON document, JSON lines or a table, one after the other.

Parquet holds images, so it is read a few rows at a time: no more of them are in memory at once.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sightline.errors import SightlineError
from sightline.places import open_file
from sightline.probes.json_lines import open_text, read_objects
from sightline.probes.raw_text import PARQUET, encoding_of, read_bytes, start_of

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
        for index, (place, cells) in enumerate(_rows(file)):
            if index == 0:
                _refuse_other_columns(file, list(cells), needed)
            yield DataRow(f"{file} {place}", number, cells)
            number += 1


def parquet_columns(file: Path) -> list[str]:
    """Names of the columns, from the end of the file; no row is read."""
    from pyarrow import ArrowException
    from pyarrow.parquet import read_schema

    try:
        return list(read_schema(file).names)
    except (ArrowException, OSError) as problem:
        raise SightlineError(f"{file}: damaged parquet file: {_first_line(problem)}") from None


def table_delimiter(start: str, *columns: str) -> str | None:
    """The delimiter under which the first line of a table names all these columns; None if there is none."""
    first = start.lstrip("\ufeff").partition("\n")[0]
    for delimiter in DELIMITERS:
        names = [_plain(name) for name in cells_of(first, delimiter)]
        if set(columns) <= set(names):
            return delimiter
    return None


def cells_of(line: str, delimiter: str) -> list[str]:
    """The cells of one line; none where it is no line of a table."""
    try:
        return next(csv.reader([line], delimiter=delimiter), [])
    except csv.Error:
        return []


def _rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(place, cells) by the kind of file that it is, which is seen from its first characters."""
    with open_binary(file) as stream:
        if stream.read(len(PARQUET)) == PARQUET:
            return _parquet_rows(file)
    start = start_of(file, 4096).lstrip("\ufeff \t\r\n")
    if start.startswith("["):
        return _document_rows(file)
    if start.startswith("{"):
        return _line_rows(file) if _begins_with_a_line(file) else _document_rows(file)
    if "\n" in start and table_delimiter(start, "question") is not None:
        return _table_rows(file)
    raise SightlineError(f"{file}: neither parquet nor JSON nor a table whose first line names a column 'question'")


def open_binary(file: Path) -> io.BufferedReader:
    try:
        return open_file(file)
    except OSError as problem:
        raise SightlineError(f"{file}: cannot be read: {problem.strerror or problem}") from None


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
        raise SightlineError(f"{file}: damaged parquet file: {_first_line(problem)}") from None


def _document_rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """A list of objects, or an object that has one under ``data``."""
    with open_text(file) as stream:
        try:
            document: Any = json.load(stream)
        except (ValueError, RecursionError) as problem:
            raise SightlineError(f"{file}: not a JSON document: {problem}") from None
    rows = document.get("data") if isinstance(document, dict) else document
    if not isinstance(rows, list) or not rows:
        raise SightlineError(f"{file}: needs a list of questions, or an object with one under 'data'")
    for number, cells in enumerate(rows, start=1):
        if not isinstance(cells, dict):
            raise SightlineError(f"{file} row {number}: expected an object, found {type(cells).__name__}")
        yield f"row {number}", cells


def _line_rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for number, cells in read_objects(file):
        yield f"line {number}", cells


def _table_rows(file: Path) -> Iterator[tuple[str, Mapping[str, Any]]]:
    data = read_bytes(file)
    try:
        text = data.decode(encoding_of(data))
    except UnicodeDecodeError as problem:
        raise SightlineError(f"{file}: not UTF-8 text ({problem.reason} at byte {problem.start})") from None
    table = csv.reader(io.StringIO(text, newline=""), delimiter=table_delimiter(text, "question") or ",")
    try:
        names = [_plain(name) for name in next(table, [])]
        for cells in table:
            if not any(cell.strip() for cell in cells):
                continue
            if len(cells) != len(names):
                raise SightlineError(f"{file} line {table.line_num}: {len(cells)} cells under {len(names)} columns")
            yield f"line {table.line_num}", dict(zip(names, cells, strict=True))
    except csv.Error as problem:
        raise SightlineError(f"{file} line {table.line_num}: not a table: {problem}") from None


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


def _plain(name: str) -> str:
    return name.strip().lstrip("\ufeff").lower().replace(" ", "_").replace("-", "_")


def _first_line(problem: Exception) -> str:
    return (str(problem).splitlines() or [type(problem).__name__])[0]
