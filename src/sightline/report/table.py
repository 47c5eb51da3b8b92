"""A table of the report: one data frame, its columns in words, the same content as CSV, Markdown, LaTeX and HTML."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

Kind = Literal["text", "count", "score", "signed", "percent", "number", "ratio", "p", "words"]

NUMERIC: frozenset[Kind] = frozenset({"count", "score", "signed", "percent", "number", "ratio", "p"})
MISSING = "–"
MINUS = "−"

_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    MINUS: "$-$",
    MISSING: "--",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "→": r"$\to$",
    "·": r"$\cdot$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
}


@dataclass(frozen=True)
class TableColumn:
    """One column: where its values are, what stands above them and how they are printed."""

    key: str
    title: str
    kind: Kind = "text"
    interval: bool = False
    """Whether ``key_low`` and ``key_high`` hold an interval that is printed with the value."""
    help: str = ""
    """One sentence for the header's tooltip."""


@dataclass(frozen=True)
class Cell:
    """One printed cell: the value, its interval if it has one, and what sorting compares."""

    text: str
    interval: str
    sort: str
    numeric: bool


@dataclass(frozen=True)
class Table:
    """A data frame with presentation. ``name`` is the file stem of its CSV, Markdown and LaTeX files."""

    name: str
    title: str
    caption: str
    columns: list[TableColumn]
    frame: pd.DataFrame
    filter: str = ""
    """Key of a column that the page lets readers narrow a long table by."""
    reading: str = ""
    """What the numbers say, in one sentence made from them."""
    unprinted: tuple[str, ...] = ()
    """Keys of further columns that only the CSV has."""

    @property
    def filter_column(self) -> int:
        return next((i for i, column in enumerate(self.columns) if column.key == self.filter), -1)

    def choices(self) -> list[str]:
        """The values of the filter column, in order of first appearance."""
        return [] if not self.filter else [str(value) for value in self.frame[self.filter].unique()]

    def cells(self) -> Iterator[list[Cell]]:
        """The rows as printed."""
        for record in self.frame.to_dict("records"):
            yield [_cell(column, {str(k): v for k, v in record.items()}) for column in self.columns]

    def csv(self) -> str:
        """Every value at full precision, interval bounds in columns of their own."""
        keys: list[str] = []
        for column in self.columns:
            keys.append(column.key)
            if column.interval:
                keys += [f"{column.key}_low", f"{column.key}_high"]
        keys += [key for key in self.unprinted if key not in keys]
        return str(self.frame.reindex(columns=keys).to_csv(index=False, lineterminator="\n"))

    def markdown(self) -> str:
        rule = ["---:" if column.kind in NUMERIC else "---" for column in self.columns]
        lines = [[column.title for column in self.columns], rule]
        lines += [[_markdown_escape(_joined(cell)) for cell in row] for row in self.cells()]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        said = f"{_markdown_escape(self.reading)}\n\n" if self.reading else ""
        return f"### {self.title}\n\n{said}{self.caption}\n\n{body}\n"

    def latex(self) -> str:
        """A ``booktabs`` table, ready to be included."""
        spec = "".join("r" if column.kind in NUMERIC else "l" for column in self.columns)
        head = " & ".join(latex_escape(column.title) for column in self.columns)
        rows = [" & ".join(latex_escape(_joined(cell)) for cell in row) + r" \\" for row in self.cells()]
        return "\n".join(
            [
                r"\begin{table}[t]",
                r"\centering\small",
                rf"\begin{{tabular}}{{@{{}}{spec}@{{}}}}",
                r"\toprule",
                head + r" \\",
                r"\midrule",
                *rows,
                r"\bottomrule",
                r"\end{tabular}",
                rf"\caption{{{latex_escape(' '.join(filter(None, (self.title + '.', self.reading, self.caption))))}}}",
                rf"\label{{tab:{self.name}}}",
                r"\end{table}",
                "",
            ]
        )

    def write(self, folder: Path) -> None:
        """Writes NAME.csv, NAME.md and NAME.tex."""
        folder.mkdir(parents=True, exist_ok=True)
        for suffix, text in (("csv", self.csv()), ("md", self.markdown()), ("tex", self.latex())):
            (folder / f"{self.name}.{suffix}").write_text(text, encoding="utf-8")


def format_value(value: Any, kind: Kind) -> str:
    """A value as it is printed anywhere in the report; missing and non-finite values are a dash."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)) or value is pd.NA:
        return MISSING
    if kind in ("text", "words"):
        return str(value)
    number = float(value)
    if kind == "count":
        return f"{round(number):,}".replace(",", "\u202f") if abs(number) >= 10_000 else str(round(number))
    if kind == "percent":
        return f"{100 * number:.1f}%".replace("-0.0%", "0.0%").replace("-", MINUS)
    if kind == "number":
        return f"{number:.2f}" if abs(number) < 100 else f"{number:.0f}"
    if kind == "ratio":
        return f"{number:.2f}×" if abs(number) < 100 else f"{number:.0f}×"
    if kind == "p" and number < 0.0005:
        return "<0.001"
    text = f"{number:+.3f}" if kind == "signed" else f"{number:.3f}"
    return "0.000" if text in ("+0.000", "-0.000") else text.replace("-", MINUS)


def format_range(low: Any, high: Any, kind: Kind) -> str:
    """An interval as printed: ``−0.014 to +0.020``, or ``0.74–0.82`` where no sign can be mistaken for a dash."""
    left, right = format_value(low, kind), format_value(high, kind)
    if MISSING in (left, right):
        return ""
    return f"{left} to {right}" if kind == "signed" else f"{left.removesuffix('%')}–{right}"


def latex_escape(text: str) -> str:
    return "".join(_LATEX.get(character, character) for character in text)


def _cell(column: TableColumn, record: dict[str, Any]) -> Cell:
    value = record.get(column.key)
    text = format_value(value, column.kind)
    numeric = column.kind in NUMERIC
    interval = ""
    if column.interval and text != MISSING:
        interval = format_range(record.get(f"{column.key}_low"), record.get(f"{column.key}_high"), column.kind)
    sort = ("" if text == MISSING else repr(float(value))) if numeric and value is not None else text
    return Cell(text, interval, sort, numeric)


def _joined(cell: Cell) -> str:
    return f"{cell.text} ({cell.interval})" if cell.interval else cell.text


def _markdown_escape(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
    return escaped.replace("<", "&lt;").replace(">", "&gt;")
