"""Rows of one run that were not all computed alike, to the last bit: under which settings, and how many under each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sightline.store.run_settings import VERSIONS, settings_had

if TYPE_CHECKING:
    from sightline.store.load import Run

COLUMNS = ("device", "attention", "versions", "conditions")
"""Columns of rows that say how they were computed."""
NAMED_VERSIONS = ("sightline", *VERSIONS)
HALVED, UNSAID = "halved", "unsaid"


def settings_of_rows(batches: Iterable[pa.Table | pa.RecordBatch]) -> dict[str, Counter[Any]]:
    """By setting, how many rows have each value; tables need ``COLUMNS``."""
    alike: Counter[tuple[str | None, ...]] = Counter()
    for batch in batches:
        table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
        counted = table.select(COLUMNS).group_by(list(COLUMNS)).aggregate([([], "count_all")])
        for line in counted.to_pylist():
            alike[tuple(line[name] for name in COLUMNS)] += line["count_all"]
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
    return mixture_words(settings_of_rows(run.scan(list(COLUMNS))))


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
