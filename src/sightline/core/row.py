"""The columns of a row and of an image record, which ``row.toml`` lists, and where probes are cut into shards."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import pyarrow as pa


SCHEMA_VERSION = 2


class Column(NamedTuple):
    """One column of a table on disk."""

    name: str
    type: str
    """As Arrow calls it: string, bool, int32, float32, float64, binary, or list<...> of one of them."""
    doc: str


_DECLARED = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
ROW_COLUMNS = tuple(Column(*each) for each in _DECLARED["rows"])
"""What every row has, whatever the scorer; a scorer names its own columns, which stand behind ``correct``."""
IMAGE_COLUMNS = tuple(Column(*each) for each in _DECLARED["images"])


def schema(columns: tuple[Column, ...]) -> pa.Schema:
    import pyarrow as pa

    def kind(name: str) -> pa.DataType:
        inner = name.removeprefix("list<").removesuffix(">")
        return pa.type_for_alias(inner) if inner == name else pa.list_(kind(inner))

    return pa.schema([pa.field(column.name, kind(column.type), metadata={"doc": column.doc}) for column in columns])


def row_schema(own: tuple[Column, ...] = ()) -> pa.Schema:
    """Of the rows of a scorer with these columns of its own."""
    behind = next(i for i, column in enumerate(ROW_COLUMNS) if column.name == "correct") + 1
    return schema((*ROW_COLUMNS[:behind], *own, *ROW_COLUMNS[behind:]))


def image_schema() -> pa.Schema:
    return schema(IMAGE_COLUMNS)


TIME_COLUMNS = tuple(column.name for column in ROW_COLUMNS if column.name.endswith("_ms"))
"""The only columns that may differ between two runs of the same command."""


# Where a sequence of probes, grouped by image, is cut into shards. Writers and checks of a run share this one rule.


class Stretch(NamedTuple):
    """Consecutive probes of one image within a shard."""

    image: int
    """Which image, counted from 0."""
    start: int
    stop: int
    """Which of the image's probes."""


def cut_shards(sizes: Iterable[int], images: int, probes: int | None) -> Iterator[list[Stretch]]:
    """Shards of at most so many images and probes, from the number of probes of every image in order.

    An image whose probes fit into one shard is not divided; one with more fills as many shards as it takes. Without
    ``probes`` no image is divided at all.
    """
    shard: list[Stretch] = []
    held = 0
    for image, size in enumerate(sizes):
        start = 0
        while start < size:
            left = size - start
            full = len(shard) == images or (probes is not None and held + left > probes)
            if shard and full:
                yield shard
                shard, held = [], 0
            taken = left if probes is None else min(left, probes)
            shard.append(Stretch(image, start, start + taken))
            start, held = start + taken, held + taken
    if shard:
        yield shard
