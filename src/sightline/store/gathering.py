"""Small tables put together into larger ones, so that work per table is not done per shard."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def gathered(tables: Iterable[pa.Table], rows: int) -> Iterator[pa.Table]:
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
