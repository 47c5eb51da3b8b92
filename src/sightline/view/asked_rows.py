"""What a page asks of rows: those that a query names, in an order, a few at a time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from sightline.errors import SightlineError
from sightline.view.probe_book import ProbeBook
from sightline.view.query_language import Coded, Value, matching
from sightline.view.row_index import Rows

REFERENCES = {
    "margin_full": ("margin", "Margin of the arm Full on the same probe."),
    "correct_full": ("correct", "Whether Full is right on the same probe."),
    "predicted_full": ("predicted", "What Full answered on the same probe."),
    "ecr_full": ("ecr", "Coverage under Full on the same probe."),
}
"""Columns that no file has: what Full says of the same probe and view."""
KEPT_LISTS = 12
"""Answers that stay in memory: whoever goes from case to case asks for one list again and again."""
TEXTS = {
    "question": "What was asked.",
    "target_text": "The queried string.",
    "source_text": "What stands in the regions.",
}
"""Columns of the probe file."""


class AskedRows:
    """The rows of one moment with what belongs beside them."""

    def __init__(self, rows: Rows, probes: ProbeBook) -> None:
        self.rows, self.probes = rows, probes
        self._columns: dict[str, Value] = {}
        self._lists: dict[tuple[str, str, bool, bool], NDArray[np.int64]] = {}

    @cached_property
    def names(self) -> list[str]:
        """Columns that may be asked about."""
        own = [each.name for each in self.rows.table.schema if not pa.types.is_list(each.type)]
        return [*own, *(name for name, (of, _) in REFERENCES.items() if of in own), *TEXTS]

    @property
    def docs(self) -> dict[str, str]:
        said = {**self.rows.docs, **{name: words for name, (_, words) in REFERENCES.items()}, **TEXTS}
        return {name: said.get(name, "") for name in self.names}

    def column(self, name: str) -> Value:
        if name not in self._columns:
            self._columns[name] = self._read(name)
        return self._columns[name]

    def _read(self, name: str) -> Value:
        if name in REFERENCES:
            return self._of_full(REFERENCES[name][0])
        if name in TEXTS:
            codes, ids = self.rows.codes("probe_id")
            return Coded(codes, [self.probes.text(probe, name) for probe in ids])
        column = self.rows.table.column(name)
        if pa.types.is_dictionary(column.type):
            return Coded(*self.rows.codes(name))
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        return array.cast(pa.float64()) if pa.types.is_floating(array.type) else array

    def _of_full(self, name: str) -> Value:
        """A column of Full's rows, laid beside all rows of the same probe and view."""
        place = self.full_place
        value = self.column(name)
        if isinstance(value, Coded):
            return Coded(np.where(place < 0, -1, value.codes[place]), value.texts)
        return value.take(pa.array(place, mask=place < 0))

    @cached_property
    def full_place(self) -> NDArray[np.int64]:
        """(rows,) which row is Full's about the same probe and view; -1 where there is none."""
        asked = self._cases
        plain = self.rows.codes("intervention")[0] == self.rows.code("intervention", "none")
        full = np.flatnonzero((self.rows.codes("selector")[0] == self.rows.code("selector", "full")) & plain)
        if not len(full):
            return np.full(self.rows.count, -1)
        order = full[np.argsort(asked[full], kind="stable")]
        keys = asked[order]
        found = np.minimum(np.searchsorted(keys, asked), len(keys) - 1)
        return np.where(keys[found] == asked, order[found], -1)

    def matching(self, query: str) -> NDArray[np.int64]:
        return matching(query, self.rows.count, self.names, self.column)

    def ordered(self, places: NDArray[np.int64], by: str, descending: bool) -> NDArray[np.int64]:
        """Places sorted by a column, ties in the run's order, what is null last; without a column as they are."""
        if not by:
            return places
        if by not in self.names:
            raise SightlineError(f"rows cannot be sorted by {by!r}; choose one of their columns")
        value = self.column(by)
        if isinstance(value, Coded):
            rank = np.empty(len(value.texts) + 1, dtype=np.float64)
            rank[np.argsort(np.array([str(text) for text in value.texts], dtype=object), kind="stable")] = np.arange(
                len(value.texts)
            )
            rank[-1] = np.nan
            keys = rank[value.codes[places]]
        else:
            keys = value.take(pa.array(places)).cast(pa.float64()).to_numpy(zero_copy_only=False)
        keys = np.where(np.isnan(keys), np.inf, -keys if descending else keys)
        return places[np.argsort(keys, kind="stable")]

    def listed(self, query: str, by: str, descending: bool, cases: bool) -> NDArray[np.int64]:
        """The rows of a query in an order; with ``cases`` the first of every probe and view alone."""
        key = (query, by, descending, cases)
        if key not in self._lists:
            places = self.ordered(self.matching(query), by, descending)
            if cases:
                places = places[np.sort(np.unique(self._cases[places], return_index=True)[1])]
            while len(self._lists) >= KEPT_LISTS:
                self._lists.pop(next(iter(self._lists)), None)
            self._lists[key] = places
        return self._lists[key]

    def place_in(self, places: NDArray[np.int64], probe: str, view: str | None) -> int:
        """Where a list of rows has a probe; said in words where it has not."""
        found = self.rows.codes("probe_id")[0][places] == self.rows.code("probe_id", probe)
        if view is not None:
            found &= self.rows.codes("view")[0][places] == self.rows.code("view", view)
        if not found.any():
            raise SightlineError(f"the list has no row of probe {probe!r}")
        return int(found.argmax())

    @cached_property
    def _cases(self) -> NDArray[np.int64]:
        """(rows,) one number for every probe and view."""
        probes, views = self.rows.codes("probe_id")[0], self.rows.codes("view")[0]
        return probes.astype(np.int64) * (int(views.max(initial=0)) + 1) + views

    def records(self, places: NDArray[np.int64] | Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]]:
        """Rows as plain values, with columns of Full and of the probe file too."""
        own = [name for name in columns if name in self.rows.table.column_names]
        found: list[dict[str, Any]] = self.rows.records(places, own) if own else [{} for _ in places]
        for name in columns:
            if name in own:
                continue
            if name not in self.names:
                raise SightlineError(f"rows have no column {name!r}")
            for record, value in zip(found, self._values(name, np.asarray(places, dtype=np.int64)), strict=True):
                record[name] = value
        return [{name: record[name] for name in columns} for record in found]

    def _values(self, name: str, places: NDArray[np.int64]) -> list[Any]:
        value = self.column(name)
        if isinstance(value, Coded):
            return [None if code < 0 else value.texts[code] for code in value.codes[places]]
        found: list[Any] = value.take(pa.array(places)).to_pylist()
        return [None if isinstance(one, float) and not np.isfinite(one) else one for one in found]
