"""What every shard file says of itself."""

import os
import random
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sightline.store.shard_files import (
    DamagedError,
    Mark,
    MarkedShard,
    read_shard,
    table_digest,
    texts_digest,
    write_marked,
)

TABLE = pa.table({
    "arm": ["full"] * 3,
    "margin": [0.5, None, -1.0],
    "kept_mask": [b"\x00\xff", b"ab", None],
    "arguments": ['{"sightline_checksum": "not this one"}'] * 3,
})  # fmt: skip
MARK = Mark("run", "tiny (llava)", "full", "", (MarkedShard(4, 3, "c" * 32, "v" * 32),))


@pytest.fixture(scope="module")
def content() -> bytes:
    handle = BytesIO()
    write_marked(handle, TABLE.schema, [TABLE], MARK)
    return handle.getvalue()


def test_a_file_says_what_it_is(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "00004.parquet"
    path.write_bytes(content)
    file, mark = read_shard(path)
    assert mark == MARK
    assert file.read().equals(TABLE)
    assert pq.read_table(path).equals(TABLE), "any reader of parquet reads it"
    again = BytesIO()
    write_marked(again, file.schema_arrow, [file.read()], replace(MARK, arm="other"))
    path.write_bytes(again.getvalue())
    assert read_shard(path)[1] == replace(MARK, arm="other"), "no mark is handed on"


def test_rows_of_a_shard_stand_behind_those_of_the_shards_before() -> None:
    packed = replace(MARK, shards=tuple(MarkedShard(shard, rows, "", "") for shard, rows in ((4, 3), (5, 2), (7, 1))))
    assert [packed.within(first, last) for first, last in ((4, 4), (5, 5), (4, 5), (7, 7), (5, 7))] == [
        (0, 3), (3, 5), (0, 5), (5, 6), (3, 6),
    ]  # fmt: skip


def is_damaged(path: Path) -> bool:
    try:
        read_shard(path)
    except DamagedError:
        return True
    return False


def test_every_flipped_bit_and_every_truncation_is_found(content: bytes, tmp_path: Path) -> None:
    path, chosen = tmp_path / "00004.parquet", random.Random(5)
    path.write_bytes(content)
    some = [chosen.sample(range(len(content)), chosen.randrange(1, 5)) for _ in range(4000)]
    with open(path, "r+b", buffering=0) as file:

        def put(place: int, byte: int) -> None:
            file.seek(place)
            file.write(bytes([byte]))

        for places in (*([place] for place in range(len(content))), *some):
            for place in places:
                put(place, content[place] ^ 1 << chosen.randrange(8))
            assert is_damaged(path), places
            for place in places:
                put(place, content[place])
    assert not is_damaged(path)
    path.write_bytes(content + b"\x00")
    assert is_damaged(path)
    for length in range(len(content) - 1, -1, -1):
        os.truncate(path, length)
        assert is_damaged(path), length


def test_a_file_without_a_mark_or_whose_mark_has_lost_its_name_is_damaged(tmp_path: Path) -> None:
    path, marked, plain = tmp_path / "00000.parquet", BytesIO(), BytesIO()
    pq.write_table(TABLE, plain)
    small = TABLE.drop(["arguments"])
    write_marked(marked, small.schema, [small], MARK)
    for name in (b"", b"sightline", b"checksum"):
        backwards = marked.getvalue()[::-1].replace(name[::-1], b"y" + name[::-1][1:], 1)
        path.write_bytes(backwards[::-1] if name else plain.getvalue())
        for how in ({},) if name else ({}, {"footer_alone": True}):
            with pytest.raises(DamagedError):
                read_shard(path, **how)


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


def test_chunks_slices_and_files_make_no_difference_and_order_does() -> None:
    table = pa.table(COLUMNS)
    whole = table_digest(table)
    assert table_digest(pa.concat_tables([table.slice(0, 2), table.slice(2)])) == whole
    longer = pa.concat_tables([table, table, table]).combine_chunks()
    assert table_digest(longer.slice(5, 5)) == whole
    hidden = pa.array([7, 2, 9, 4, 5], pa.int32(), mask=[False, False, True, False, False])
    assert table_digest(table.set_column(2, "counts", hidden)) != whole
    hidden = pa.array([1, 2, 9, 4, 5], pa.int32(), mask=[False, False, True, False, False])
    assert table_digest(table.set_column(2, "counts", hidden)) == whole, "what lies under a null counts"
    file = BytesIO()
    pq.write_table(pa.table(COLUMNS), file)
    assert table_digest(pq.read_table(BytesIO(file.getvalue()))) == table_digest(pa.table(COLUMNS))
    assert texts_digest(["a", "b"]) != texts_digest(["b", "a"])
    assert table_digest(table.take([1, 0, 2, 3, 4])) != table_digest(table)


def test_every_value_counts() -> None:
    table = pa.table(COLUMNS)
    whole = table_digest(table)
    for name in COLUMNS.keys() - {"unknown"}:
        column = table.column(name)
        for place in range(5):
            values = column.to_pylist()
            values[place] = next(value for value in values if value != values[place])
            changed = table.set_column(table.column_names.index(name), name, pa.array(values, column.type))
            assert table_digest(changed) != whole, (name, place)
            assert table_digest(changed, without=[name]) == table_digest(table, without=[name])
