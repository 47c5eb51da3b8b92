"""The query box: a small language over the columns of rows, read by Python's own parser and by nothing else.

    arm == "target:0.3" and correct and ecr < 0.1
    selector in ("random", "grid") and not correct
    "total" in target_text and margin > margin_full
    ecr is None or k_tokens / n_tokens > 0.5

Comparisons (chained too), ``and``, ``or``, ``not``, ``in``, ``is None``, plus, minus, times, divided by, numbers,
texts, True, False and the names of columns: whatever else Python can say is refused with its place. What compares with
nothing is neither true nor false, and a row is shown where the whole is true.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from sightline.errors import SightlineError, nearest
from sightline.view.rows import ProbeBook, Rows

LARGEST = 10**300
"""Beyond it numbers are none that a column could hold."""
LONGEST = 2000
"""Characters of a query."""
DEEPEST = 60
"""Levels of brackets and operators in one."""

COMPARISONS: Mapping[type[ast.cmpop], str] = {
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}
TEXT_COMPARISONS: Mapping[str, Callable[[str, str], bool]] = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
TURNED = {"less": "greater", "less_equal": "greater_equal", "greater": "less", "greater_equal": "less_equal"}
"""The same comparison with its sides exchanged."""
ARITHMETIC: Mapping[type[ast.operator], str] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
}


@dataclass(frozen=True)
class Coded:
    """A column of texts: (rows,) codes, -1 for null, and the few texts that they stand for."""

    codes: NDArray[np.int32]
    texts: Sequence[Any]

    def where(self, test: Callable[[str], bool | None]) -> pa.Array:
        """A test asked once per text instead of once per row."""
        found = np.array([bool(test(text)) for text in self.texts] + [False])
        return pa.array(found[self.codes], mask=self.codes < 0)

    def dense(self) -> pa.Array:
        return pa.array(np.array([*self.texts, None], dtype=object)[self.codes], pa.string())


Value = Any
"""A number, a text, a tuple of them, ``Coded`` texts or an Arrow array of numbers or truths."""
Columns = Callable[[str], Value]


def matching(query: str, rows: int, names: Sequence[str], column: Columns) -> NDArray[np.int64]:
    """The indices of the rows for which a query is true; of an empty one all of them.

    ``names`` are the columns that may be asked about, ``column`` gives one of them.
    """
    if not query.strip():
        return np.arange(rows)
    found = _Reader(query, names, column).value(_parsed(query), DEEPEST)
    if isinstance(found, bool):
        return np.arange(rows if found else 0)
    if isinstance(found, Coded) or not isinstance(found, pa.Array) or not pa.types.is_boolean(found.type):
        raise SightlineError(f"the query {query!r} is not true or false; compare something, as in ecr < 0.1")
    return np.flatnonzero(found.fill_null(False).to_numpy(zero_copy_only=False))


def _parsed(query: str) -> ast.expr:
    if len(query) > LONGEST:
        raise SightlineError(f"the query has {len(query)} characters; {LONGEST} are allowed")
    try:
        return ast.parse(query.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        where = f" at character {error.offset}" if isinstance(error, SyntaxError) and error.offset else ""
        raise SightlineError(
            f'the query cannot be read{where}; write for example arm == "target:0.3" and ecr < 0.1'
        ) from None


class _Reader:
    """One query over one set of rows."""

    def __init__(self, query: str, names: Sequence[str], column: Columns) -> None:
        self.query, self.names, self.column = query.strip(), names, column

    def value(self, node: ast.expr, left: int) -> Value:
        """What a part of the query comes to; ``left`` levels below it are read."""
        if left == 0:
            raise SightlineError(f"the query is nested more than {DEEPEST} levels deep; write it in parts")
        match node:
            case ast.BoolOp(op=joint, values=parts):
                join = pc.and_kleene if isinstance(joint, ast.And) else pc.or_kleene
                found = [self._truth(part, left - 1) for part in parts]
                whole = found[0]
                for other in found[1:]:
                    whole = join(whole, other)
                return whole
            case ast.UnaryOp(op=ast.Not(), operand=part):
                return pc.invert(self._truth(part, left - 1))
            case ast.UnaryOp(op=ast.USub(), operand=part):
                return self._computed("negate", part, self._number(part, left - 1))
            case ast.BinOp(op=sign, left=first, right=second) if type(sign) in ARITHMETIC:
                numbers = self._number(first, left - 1), self._number(second, left - 1)
                return self._computed(ARITHMETIC[type(sign)], node, *numbers)
            case ast.Compare():
                return self._compared(node, left - 1)
            case ast.Name(id=name):
                return self._named(name)
            case ast.Constant(value=int(value)) if not isinstance(value, bool) and abs(value) > LARGEST:
                raise SightlineError(f"the query has a number of {len(str(value))} digits, which no column holds")
            case ast.Constant(value=value) if value is None or isinstance(value, bool | int | float | str):
                return value
            case ast.Tuple(elts=parts) | ast.List(elts=parts) | ast.Set(elts=parts):
                return tuple(self._constant(part) for part in parts)
        raise self._refused(node)

    def _refused(self, node: ast.expr) -> SightlineError:
        said = ast.get_source_segment(self.query, node) or type(node).__name__
        return SightlineError(
            f"{said!r} at character {node.col_offset + 1} is not part of the query language: columns, numbers, texts, "
            "comparisons, and, or, not, in, is None, + - * /"
        )

    def _constant(self, node: ast.expr) -> Any:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            inner = self._constant(node.operand)
            return -inner if isinstance(inner, int | float) else inner
        if not isinstance(node, ast.Constant) or not isinstance(node.value, bool | int | float | str):
            raise self._refused(node)
        return node.value

    def _named(self, name: str) -> Value:
        if name not in self.names:
            hint = nearest(name, self.names, "the list beside the box has all")
            raise SightlineError(f"rows have no column {name!r}; {hint}")
        return self.column(name)

    def _truth(self, node: ast.expr, left: int) -> pa.Array:
        found = self.value(node, left)
        if isinstance(found, bool):
            return pa.scalar(found)
        if not isinstance(found, pa.Array) or not pa.types.is_boolean(found.type):
            said = ast.get_source_segment(self.query, node)
            raise SightlineError(f"{said!r} is not true or false; compare it with something")
        return found

    def _number(self, node: ast.expr, left: int) -> Value:
        found = self.value(node, left)
        if isinstance(found, int | float) and not isinstance(found, bool):
            return pa.scalar(float(found))
        if isinstance(found, pa.Array) and not pa.types.is_boolean(found.type):
            return found.cast(pa.float64())
        said = ast.get_source_segment(self.query, node)
        raise SightlineError(f"{said!r} is no number; only numbers are added, multiplied and divided")

    def _computed(self, name: str, node: ast.expr, *numbers: Value) -> Value:
        found = pc.call_function(name, list(numbers))
        return found.as_py() if isinstance(found, pa.Scalar) else found

    def _compared(self, node: ast.Compare, left: int) -> Value:
        """``a < b < c`` is both."""
        sides = [node.left, *node.comparators]
        values = [self.value(side, left) for side in sides]
        whole: Any = None
        for index, sign in enumerate(node.ops):
            found = self._pair(sign, values[index], values[index + 1], node)
            whole = found if whole is None else pc.and_kleene(whole, found)
        return whole

    def _pair(self, sign: ast.cmpop, first: Value, second: Value, node: ast.Compare) -> Value:
        if isinstance(sign, ast.Is | ast.IsNot):
            return self._is_none(first, second, isinstance(sign, ast.IsNot), node)
        if isinstance(sign, ast.In | ast.NotIn):
            found = self._contained(first, second, node)
            return pc.invert(found) if isinstance(sign, ast.NotIn) else found
        name = COMPARISONS[type(sign)]
        if first is None or second is None or isinstance(first, tuple) or isinstance(second, tuple):
            raise self._refused(node)
        if not isinstance(first, Coded | pa.Array):
            if not isinstance(second, Coded | pa.Array):
                raise SightlineError("the query compares two fixed values; name a column on one side")
            first, second, name = second, first, TURNED.get(name, name)
        return self._ordered(name, first, second, node)

    def _ordered(self, name: str, first: Value, second: Value, node: ast.Compare) -> pa.Array:
        """A column compared with a fixed value or another column."""
        compare = getattr(pc, name)
        if isinstance(first, Coded):
            if isinstance(second, Coded):
                return compare(first.dense(), second.dense())
            if not isinstance(second, str):
                raise self._unlike(node)
            on_texts = TEXT_COMPARISONS[name]
            return first.where(lambda text: on_texts(text, second))
        truths = pa.types.is_boolean(first.type)
        if isinstance(second, Coded | str):
            raise self._unlike(node)
        if isinstance(second, pa.Array):
            if truths != pa.types.is_boolean(second.type):
                raise self._unlike(node)
            return compare(first, second)
        if truths != isinstance(second, bool):
            raise self._unlike(node)
        return compare(first, pa.scalar(second) if truths else pa.scalar(float(second)))

    def _unlike(self, node: ast.Compare) -> SightlineError:
        said = ast.get_source_segment(self.query, node)
        return SightlineError(f"{said!r} compares a text, a number or a truth with another kind; texts stand in quotes")

    def _is_none(self, first: Value, second: Value, inverted: bool, node: ast.Compare) -> pa.Array:
        if second is not None or not isinstance(first, Coded | pa.Array):
            raise self._refused(node)
        if isinstance(first, Coded):
            found = pa.array(first.codes < 0)
        else:
            found = pc.is_null(first, nan_is_null=pa.types.is_floating(first.type))
        return pc.invert(found) if inverted else found

    def _contained(self, first: Value, second: Value, node: ast.Compare) -> pa.Array:
        """A column among fixed values, or a text within those of a column."""
        if isinstance(first, str) and isinstance(second, Coded):
            wanted = first.casefold()
            return second.where(lambda text: wanted in text.casefold())
        if not isinstance(second, tuple):
            raise self._refused(node)
        if isinstance(first, Coded):
            chosen = set(second)
            return first.where(lambda text: text in chosen)
        if (
            isinstance(first, pa.Array)
            and not pa.types.is_boolean(first.type)
            and not any(isinstance(value, str) for value in second)
        ):
            return pc.is_in(first.cast(pa.float64()), pa.array([float(value) for value in second]))
        raise self._unlike(node)


# What a page asks of rows: those that a query names, in an order, a few at a time.

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
            first, codes = np.unique(self._cases, return_index=True, return_inverse=True)[1:]
            return Coded(codes.astype(np.int32), self._told(name, first))
        column = self.rows.table.column(name)
        if pa.types.is_dictionary(column.type):
            return Coded(*self.rows.codes(name))
        array = column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)
        return array.cast(pa.float64()) if pa.types.is_floating(array.type) else array

    def _of_full(self, name: str) -> Value:
        """A column of Full's rows, laid beside all rows of the same probe and view."""
        index = self.full_index
        value = self.column(name)
        if isinstance(value, Coded):
            return Coded(np.where(index < 0, -1, value.codes[index]), value.texts)
        return value.take(pa.array(index, mask=index < 0))

    @cached_property
    def full_index(self) -> NDArray[np.int64]:
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

    def ordered(self, indices: NDArray[np.int64], by: str, descending: bool) -> NDArray[np.int64]:
        """Places sorted by a column, ties in the run's order, what is null last; without a column as they are."""
        if not by:
            return indices
        if by not in self.names:
            raise SightlineError(f"rows cannot be sorted by {by!r}; choose one of their columns")
        value = self.column(by)
        if isinstance(value, Coded):
            rank = np.empty(len(value.texts) + 1, dtype=np.float64)
            rank[np.argsort(np.array([str(text) for text in value.texts], dtype=object), kind="stable")] = np.arange(
                len(value.texts)
            )
            rank[-1] = np.nan
            keys = rank[value.codes[indices]]
        else:
            keys = value.take(pa.array(indices)).cast(pa.float64()).to_numpy(zero_copy_only=False)
        keys = np.where(np.isnan(keys), np.inf, -keys if descending else keys)
        return indices[np.argsort(keys, kind="stable")]

    def listed(self, query: str, by: str, descending: bool, cases: bool) -> NDArray[np.int64]:
        """The rows of a query in an order; with ``cases`` the first of every probe and view alone."""
        key = (query, by, descending, cases)
        if key not in self._lists:
            indices = self.ordered(self.matching(query), by, descending)
            if cases:
                indices = indices[np.sort(np.unique(self._cases[indices], return_index=True)[1])]
            while len(self._lists) >= KEPT_LISTS:
                self._lists.pop(next(iter(self._lists)), None)
            self._lists[key] = indices
        return self._lists[key]

    def index_in(self, indices: NDArray[np.int64], probe: str, view: str | None) -> int:
        """Where a list of rows has a probe; said in words where it has not."""
        found = self.rows.codes("probe_id")[0][indices] == self.rows.code("probe_id", probe)
        if view is not None:
            found &= self.rows.codes("view")[0][indices] == self.rows.code("view", view)
        if not found.any():
            raise SightlineError(f"the list has no row of probe {probe!r}")
        return int(found.argmax())

    @cached_property
    def _cases(self) -> NDArray[np.int64]:
        """(rows,) one number for every probe and view."""
        probes, views = self.rows.codes("probe_id")[0], self.rows.codes("view")[0]
        return probes.astype(np.int64) * (int(views.max(initial=0)) + 1) + views

    def records(self, indices: NDArray[np.int64] | Sequence[int], columns: Sequence[str]) -> list[dict[str, Any]]:
        """Rows as plain values, with columns of Full and of the probe file too."""
        own = [name for name in columns if name in self.rows.table.column_names]
        found: list[dict[str, Any]] = self.rows.records(indices, own) if own else [{} for _ in indices]
        for name in columns:
            if name in own:
                continue
            if name not in self.names:
                raise SightlineError(f"rows have no column {name!r}")
            for record, value in zip(found, self._values(name, np.asarray(indices, dtype=np.int64)), strict=True):
                record[name] = value
        return [{name: record[name] for name in columns} for record in found]

    def _told(self, name: str, indices: NDArray[np.int64]) -> list[str]:
        """What the probe file says of some rows: a control set asks about each view in words of its own."""
        (probes, ids), (views, called) = self.rows.codes("probe_id"), self.rows.codes("view")
        return [self.probes.text(ids[probes[index]], called[views[index]], name) for index in indices]

    def _values(self, name: str, indices: NDArray[np.int64]) -> list[Any]:
        if name in TEXTS:
            return list(self._told(name, indices))
        value = self.column(name)
        if isinstance(value, Coded):
            return [None if code < 0 else value.texts[code] for code in value.codes[indices]]
        found: list[Any] = value.take(pa.array(indices)).to_pylist()
        return [None if isinstance(one, float) and not np.isfinite(one) else one for one in found]
