"""Rows of one run that were not all computed alike, to the last bit: under which settings, and how many under each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from sightline.store.shard_files import Owner, ShardPiece, bounds
from sightline.store.soundness import VERSIONS, settings_had

if TYPE_CHECKING:
    from sightline.store.load import Run

COLUMNS = ("device", "attention", "versions", "conditions")
"""Columns of rows that say how they were computed."""
Alike: TypeAlias = tuple[str | None, ...]
"""What a row says in them."""
NAMED_VERSIONS = ("sightline", *VERSIONS)
HALVED, UNSAID = "halved", "unsaid"


def alike_in(piece: ShardPiece, owner: Owner) -> Counter[Alike]:
    """How many rows of a piece say the same in ``COLUMNS``, None where they have no such column.

    A footer says it where all rows of its file do, as nearly always; else they are read.
    """
    opened = owner.opened(piece.file, footer_alone=True)
    parquet, mark = opened
    start, stop = bounds(piece, mark, parquet.metadata.num_rows)
    if (told := _told_by_footer(parquet.metadata)) is not None:
        return Counter({told: stop - start})
    found: Counter[Alike] = Counter()
    names = [field.name for field in parquet.schema_arrow if field.name in COLUMNS and pa.types.is_string(field.type)]
    for table in owner.batches_of(opened, piece, names):
        for line in table.group_by(names).aggregate([([], "count_all")]).to_pylist():
            found[tuple(line.get(name) for name in COLUMNS)] += line["count_all"]
    return found


def _told_by_footer(metadata: pq.FileMetaData) -> Alike | None:
    """What all rows of a file say, if its statistics show that they say the same."""
    said: dict[str, set[Any]] = {name: set() for name in COLUMNS}
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in said:
                known = column.statistics
                if known is None or known.null_count or not known.has_min_max or not isinstance(known.min, str):
                    return None
                said[column.path_in_schema] |= {known.min, known.max}
    if any(len(values) > 1 for values in said.values()):
        return None
    return tuple(next(iter(said[name]), None) for name in COLUMNS)


def settings_of(alike: Mapping[Alike, int]) -> dict[str, Counter[Any]]:
    """By setting, how many rows have each value."""
    found: dict[str, Counter[Any]] = {}
    for (device, attention, versions, conditions), rows in alike.items():
        known = {"device": device, "attention": attention, **_named(versions), **_object(conditions)}
        known[UNSAID] = conditions is None
        for name, value in known.items():
            if value is not None:
                found.setdefault(name, Counter())[value] += rows
    return found


def mixture_of(run: Run) -> str:
    """In words what differs between rows of a run; "" where nothing does."""
    alike: Counter[Alike] = Counter()
    for arm in run.arms:
        for piece in run.pieces(arm):
            alike += alike_in(piece, run.owner(arm))
    return mixture_words(settings_of(alike))


def mixture_words(found: Mapping[str, Counter[Any]]) -> str:
    several = [
        f"{name} {', '.join(f'{value} ({_rows(rows)})' for value, rows in values.items())}"
        for name, values in found.items()
        if name not in (HALVED, UNSAID) and len(values) > 1
    ]
    if halved := found.get(HALVED, Counter())[True]:
        several.append(f"{_rows(halved)} in batches that were halved when memory ran out")
    unsaid = found.get(UNSAID, Counter())
    if unsaid[True] and unsaid[False]:
        several.append(f"{_rows(unsaid[True])} of an earlier release, which did not say how they were batched")
    return f"rows that were not computed alike, so that last bits may differ: {'; '.join(several)}" if several else ""


def unnamed_settings(found: Mapping[str, Counter[Any]], manifest: Mapping[str, Any]) -> list[str]:
    """What rows say of themselves and the manifest of their run does not."""
    return [
        f"{name} {value}"
        for name, values in found.items()
        for value in values
        if (had := settings_had(manifest, name)) and value not in had
    ]


def _named(versions: str | None) -> dict[str, Any]:
    return {name: value for name, value in _object(versions).items() if name in NAMED_VERSIONS}


def _object(text: str | None) -> dict[str, Any]:
    """Plain values by name; of what nobody wrote, none."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {name: value for name, value in pairs if isinstance(value, str | int | float | bool)}


def _rows(count: int) -> str:
    return f"{count} row{'s' * (count != 1)}"
