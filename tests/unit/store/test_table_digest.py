from __future__ import annotations

from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sightline.store.marks import table_digest, texts_digest

COLUMNS = {
    "words": pa.array(["a", None, "", "bc", "a"]),
    "masks": pa.array([b"\x00", b"", None, b"\xff\x01", b"q"]),
    "counts": pa.array([1, 2, None, 4, 5], pa.int32()),
    "shares": pa.array([0.5, None, 1.0, -0.0, 2.0], pa.float32()),
    "right": pa.array([True, None, False, True, True]),
    "layers": pa.array([[1, 2], None, [], [3, None], [4]], pa.list_(pa.int32())),
    "boxes": pa.array([[[0.5], []], None, [], [None], [[1.0]]], pa.list_(pa.list_(pa.float64()))),
    "unknown": pa.nulls(5),
}


def test_chunks_and_slices_make_no_difference() -> None:
    table = pa.table(COLUMNS)
    whole = table_digest(table)
    assert table_digest(pa.concat_tables([table.slice(0, 2), table.slice(2)])) == whole
    longer = pa.concat_tables([table, table, table]).combine_chunks()
    assert table_digest(longer.slice(5, 5)) == whole
    hidden = pa.array([7, 2, 9, 4, 5], pa.int32(), mask=[False, False, True, False, False])
    assert table_digest(table.set_column(2, "counts", hidden)) != whole
    hidden = pa.array([1, 2, 9, 4, 5], pa.int32(), mask=[False, False, True, False, False])
    assert table_digest(table.set_column(2, "counts", hidden)) == whole, "what lies under a null counts"


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "unknown"])
@pytest.mark.parametrize("place", range(5))
def test_every_value_counts(name: str, place: int) -> None:
    table = pa.table(COLUMNS)
    values = table.column(name).to_pylist()
    other = next(value for value in values if value != values[place])
    values[place] = other
    changed = table.set_column(table.column_names.index(name), name, pa.array(values, table.column(name).type))
    assert table_digest(changed) != table_digest(table)
    assert table_digest(changed, without=[name]) == table_digest(table, without=[name])


def test_a_file_makes_no_difference() -> None:
    file = BytesIO()
    pq.write_table(pa.table(COLUMNS), file)
    assert table_digest(pq.read_table(BytesIO(file.getvalue()))) == table_digest(pa.table(COLUMNS))


def test_order_counts() -> None:
    assert texts_digest(["a", "b"]) != texts_digest(["b", "a"])
    table = pa.table(COLUMNS)
    assert table_digest(table.take([1, 0, 2, 3, 4])) != table_digest(table)
