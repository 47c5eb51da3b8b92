"""Rows as lines of text, CSV or JSON, a batch at a time and column by column.

Numbers are written in the shortest form that reads back to the same bits, masks as base64, lists as JSON.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from sightline.core.text import BEGINNINGS, MARK


def csv_header(names: list[str]) -> bytes:
    return (",".join(map(_quoted, names)) + "\n").encode()


def csv_lines(batch: pa.RecordBatch) -> bytes:
    """An empty cell is a null. A text that a spreadsheet would compute begins with an apostrophe instead."""
    cells = [_cells(column, _quoted_text, "True", "False", nothing="", lists=_quoted) for column in batch.columns]
    return _joined(cells, ",")


def json_lines(batch: pa.RecordBatch) -> bytes:
    """One object per row, with every column."""
    cells = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        text = _cells(column, _json, "true", "false", nothing="null", lists=str, finite=True)
        cells.append(pc.binary_join_element_wise(f"{_json(name)}:", text, ""))
    cells[0] = pc.binary_join_element_wise("{", cells[0], "")
    cells[-1] = pc.binary_join_element_wise(cells[-1], "}", "")
    return _joined(cells, ",")


def _joined(cells: list[pa.Array], between: str) -> bytes:
    lines = pc.binary_join_element_wise(*cells, between)
    text = "\n".join(lines.to_pylist())
    return f"{text}\n".encode() if len(lines) else b""


def _cells(
    column: pa.Array,
    words: Callable[[str], str],
    true: str,
    false: str,
    *,
    nothing: str,
    lists: Callable[[str], str],
    finite: bool = False,
) -> pa.Array:
    """Every value as text. ``finite``: a number that is none (nan, inf) is written as nothing."""
    kind = column.type
    if pa.types.is_boolean(kind):
        text = pc.if_else(column, true, false)
    elif pa.types.is_integer(kind):
        text = column.cast(pa.string())
    elif pa.types.is_floating(kind):
        known = column if not finite else pc.if_else(pc.is_finite(column), column, None)
        text = known.cast(pa.string())
        # With a point where a whole number would be taken for an integer.
        whole = pc.match_substring_regex(text, r"^-?\d+$")
        text = pc.if_else(whole, pc.binary_join_element_wise(text, ".0", ""), text)
    elif pa.types.is_string(kind):
        text = _each_once(column, words)
    elif pa.types.is_binary(kind):
        text = _each_once(column, lambda value: words(base64.b64encode(value).decode()))
    elif pa.types.is_null(kind):
        text = pa.nulls(len(column), pa.string())
    else:
        texts = [None if value is None else lists(_json(value)) for value in column.to_pylist()]
        text = pa.array(texts, pa.string())
    return text.fill_null(nothing)


def _each_once(column: pa.Array, words: Callable[[Any], str]) -> pa.Array:
    """A text per value, made once however often the value occurs."""
    coded = column.dictionary_encode()
    return pa.array([words(value) for value in coded.dictionary.to_pylist()], pa.string()).take(coded.indices)


def _quoted_text(text: str) -> str:
    return _quoted(f"{MARK}{text}" if text.startswith(BEGINNINGS) else text)


def _quoted(text: str) -> str:
    """In quotes where a reader would otherwise see something else."""
    if not any(sign in text for sign in ',"\r\n') and text.strip() == text:
        return text
    return '"' + text.replace('"', '""') + '"'


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
