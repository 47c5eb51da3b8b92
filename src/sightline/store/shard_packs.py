"""Shard files put together into fewer and larger ones, and taken apart again. Rows stay bit for bit what they were."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from sightline.core.row import TIME_COLUMNS
from sightline.errors import SightlineError
from sightline.places import Place
from sightline.places.writing import make_folder, whole_file
from sightline.store.gathering import gathered
from sightline.store.marks import DamagedError, Mark, MarkedShard, read_marked, write_marked
from sightline.store.shard_files import ShardFile, ShardPiece, shard_file_name
from sightline.store.shard_reading import Owner, bounds
from sightline.store.table_digest import table_digest, texts_digest

GROUP = 65_536
"""Most rows of a row group: what a reader of one holds at once."""
PACK = 500_000
"""Most rows of a pack, unless one shard has more."""


def held_shards(piece: ShardPiece, owner: Owner) -> list[MarkedShard]:
    """What a piece holds, shard by shard; of a file without a mark, which is one shard, computed."""
    _, mark = owner.opened(piece.file)
    if mark is not None:
        return [held for held in mark.shards if piece.first <= held.shard <= piece.last]
    try:
        return [held_of(owner.read(piece), piece.first, owner.arm)]
    except DamagedError as error:
        raise SightlineError(owner.line(piece.file, f"is damaged ({error})")) from None


def held_of(table: pa.Table, shard: int, arm: str | None) -> MarkedShard:
    """What a mark says of the rows of an arm in a shard, or of image records."""
    about, aside = ("image_key", ()) if arm is None else ("probe_id", TIME_COLUMNS)
    texts: list[Any] = table.column(about).to_pylist() if about in table.column_names else [None]
    if not all(isinstance(text, str) for text in texts):
        raise DamagedError(f"its column '{about}' does not hold a text in every row")
    return MarkedShard(shard, table.num_rows, texts_digest(texts), table_digest(table, without=aside))


def pack_groups(found: Iterable[ShardPiece], owner: Owner) -> list[list[ShardPiece]]:
    """Which pieces make a pack: neighbours with the same columns, up to so many rows. Packing twice changes nothing."""
    groups: list[list[ShardPiece]] = []
    rows, columns = 0, None
    for piece in found:
        parquet, mark = owner.opened(piece.file)
        schema = parquet.schema_arrow.remove_metadata()
        start, stop = bounds(piece, mark, parquet.metadata.num_rows)
        own = stop - start
        neighbour = bool(groups) and groups[-1][-1].last + 1 == piece.first
        alike = schema.equals(columns) if columns is not None else False
        if neighbour and alike and rows + own <= PACK:
            groups[-1].append(piece)
            rows += own
        else:
            groups.append([piece])
            rows, columns = own, schema
    return groups


def write_pack(group: Sequence[ShardPiece], owner: Owner, folder: Place, model: str) -> Place:
    """One file of all rows of some neighbouring pieces. It is whole or absent, and compared before its path is told."""
    version = group[0].file.version
    first, last = group[0].first, group[-1].last
    path = folder / shard_file_name(first, None if first == last else last, version)
    held = [each for piece in group for each in held_shards(piece, owner)]
    parquet, _ = owner.opened(group[0].file)
    make_folder(folder)
    mark = Mark(owner.run, model, owner.arm, version, tuple(held))
    with whole_file(path) as handle:
        rows = (table for piece in group for table in owner.batches(piece, rows=GROUP))
        write_marked(handle, parquet.schema_arrow, gathered(rows, GROUP), mark, GROUP)
    read_marked(path, must_be_marked=True)
    return path


def unpack(file: ShardFile, owner: Owner, *, without: int | None = None) -> None:
    """Writes every shard of a pack as a file of its own, but for one; the pack itself stays."""
    parquet, mark = owner.opened(file)
    assert mark is not None, "packs are marked"
    for held in mark.shards:
        if held.shard != without:
            table = owner.read(ShardPiece(file, held.shard, held.shard))
            with whole_file(file.path.with_name(shard_file_name(held.shard, version=file.version))) as handle:
                write_marked(handle, parquet.schema_arrow, [table], replace(mark, shards=(held,)))
