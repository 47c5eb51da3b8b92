"""A table: one data frame, its columns in words, the same content on a terminal and as CSV, Markdown and LaTeX.

``print_rows`` prints lines of words that are no data frame, such as a list of methods, in the same look.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sightline.core.text import without_formulas
from sightline.places.writing import write_whole

if TYPE_CHECKING:  # A command that lists names needs neither pandas nor, before it prints, rich.
    import pandas as pd
    from rich.console import Console
    from rich.text import Text

Kind = Literal["text", "count", "score", "signed", "percent", "number", "ratio", "p", "words"]

NUMERIC: frozenset[Kind] = frozenset({"count", "score", "signed", "percent", "number", "ratio", "p"})
MISSING = "–"
MINUS = "−"
_ASCII = str.maketrans({MISSING: "-", MINUS: "-", "\u202f": "", "×": "x"})
ARM_COLUMNS = ("arm", "left", "right", "against")
"""Columns that hold arms as the report calls them."""
WIDE = 120
"""Columns of a terminal from which on a value and its interval fit beside each other."""
LONG_WORDS = 18
"""Characters that words of a first column have at least before they fold on a narrow terminal."""
LONGEST_PIECE = 24
"""Characters of a word beyond which it is broken anywhere: a path, a digest."""
BETWEEN_NAMES, WITHIN_NAMES = re.compile(r"(?<=[\s:/,+·])"), re.compile(r"(?<=[\s:/,+·_-])")
"""Where a name such as an arm's may go on in the next line, and where it may if need be."""

_LATEX = {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    **{sign: rf"\{sign}" for sign in "&%$#_{}"},
    MINUS: "$-$", MISSING: "--", "≥": r"$\geq$", "≤": r"$\leq$", "→": r"$\to$", "·": r"$\cdot$",
    "×": r"$\times$", "±": r"$\pm$", "Δ": r"$\Delta$", "β": r"$\beta$", "ρ": r"$\rho$",
    **{sign: f"${sign}$" for sign in "|<>"},  # which are other signs in TeX's own encoding
}  # fmt: skip


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
    link: str = ""
    """Key of a column that says which cases of the gallery a value stands for, as a query; empty where none."""


@dataclass(frozen=True)
class Cell:
    """One printed cell: the value, its interval if it has one, and what sorting compares."""

    text: str
    interval: str
    sort: str
    numeric: bool
    cases: str = ""
    """Which cases of the gallery it stands for."""
    again: bool = False
    """Whether it repeats the cell above and is left blank."""


@dataclass(frozen=True)
class Panel:
    """Rows that stand together under a heading of their own; without a heading, all rows of a table."""

    heading: str
    rows: list[list[Cell]]


@dataclass(frozen=True)
class NamedRun:
    """A run as the files beside a report tell it apart."""

    name: str
    """What stands before its arms; empty when the report has a single run."""
    label: str
    """What the column ``run`` calls it: its folder, or its letter in a comparison."""
    model: str

    def own(self, arm: str) -> str | None:
        """The run's own name of an arm of the report; None where it is another run's."""
        prefix = f"{self.name} · " if self.name else ""
        return arm.removeprefix(prefix) if arm.startswith(prefix) else None


@dataclass(frozen=True)
class Table:
    """A data frame with presentation. ``name`` is the file stem of its CSV, Markdown and LaTeX files.

    ``arm`` is the arm as the report calls it, with the run in front where there are several; a table in panels may show
    ``arm_name`` in its place.
    """

    name: str
    title: str
    caption: str
    columns: list[TableColumn]
    frame: pd.DataFrame
    filter: str = ""
    """Key of a column that the page lets readers narrow a long table by."""
    sentence: str = ""
    """What the numbers say, in one sentence made from them."""
    unprinted: tuple[str, ...] = ()
    """Keys of further columns that only the CSV has."""
    panel: str = ""
    """Key of a column with the headings under which rows stand together, in order of first appearance."""
    repeated: tuple[str, ...] = ()
    """Keys of leading columns: where a row has the same values there as the one above, its first is left blank."""

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

    def panels(self) -> list[Panel]:
        """The rows under their headings."""
        named = self.frame[self.panel] if self.panel else [""] * len(self.frame)
        headings = [unlettered(str(heading)) for heading in named]
        keys = list(self.frame[list(self.repeated)].itertuples(index=False, name=None)) if self.repeated else []
        found: dict[str, Panel] = {heading: Panel(heading, []) for heading in headings or [""]}
        for i, (heading, row) in enumerate(zip(headings, self.cells(), strict=True)):
            if i and keys and keys[i] == keys[i - 1]:
                row[0] = replace(row[0], again=True)
            found[heading].rows.append(row)
        return list(found.values())

    def csv(self, runs: Sequence[NamedRun] = ()) -> str:
        """Every value at full precision, interval bounds in columns of their own.

        Given the runs of a report, the model, and the run where there are several, stand in columns of their own too,
        and the arm is that of its run.
        """
        keys: list[str] = []
        for column in self.columns:
            keys.append("arm" if column.key == "arm_name" else column.key)
            if column.interval:
                keys += [f"{column.key}_low", f"{column.key}_high"]
        keys += [key for key in self.unprinted if key not in keys]
        frame = self._apart(runs)
        if frame is not self.frame:
            told = ["run", "model"] if any(run.name for run in runs) else ["model"]
            keys = [*(key for key in told if key not in keys), *keys]
        cells = without_formulas(frame.reindex(columns=keys))
        return str(cells.to_csv(index=False, lineterminator="\n"))

    def _apart(self, runs: Sequence[NamedRun]) -> pd.DataFrame:
        """The frame with run, model and arm apart; as it is where its arms are not those of the runs."""
        present = [key for key in ARM_COLUMNS if key in self.frame]
        if not present:
            return self.frame
        owners = [next((run for run in runs if run.own(str(arm)) is not None), None) for arm in self.frame[present[0]]]
        known = [run for run in owners if run is not None]
        if not known or len(known) < len(owners):
            return self.frame
        apart = {
            key: [
                arm if not isinstance(arm, str) else run.own(arm) or arm
                for run, arm in zip(known, self.frame[key], strict=True)
            ]
            for key in present
        }
        models = self.frame["model"] if "model" in self.frame else [run.model for run in known]
        return self.frame.assign(run=[run.label for run in known], model=models, **apart)

    def terminal(self, console: Console, *, gap: int = 2) -> None:
        """Prints title, panels and rows. On a narrow terminal an interval stands below its value."""
        between = " " if console.width >= WIDE else "\n"
        panels = [
            (panel.heading, [["" if cell.again else _joined(cell, between) for cell in row] for row in panel.rows])
            for panel in self.panels()
        ]
        _print_panels(console, self.columns, panels, title=self.title, header=True, gap=gap)

    def markdown(self) -> str:
        lines: list[list[str]] = []
        for panel in self.panels():
            if panel.heading:
                lines.append([f"**{_markdown_escape(panel.heading)}**", *[""] * (len(self.columns) - 1)])
            lines += [["" if cell.again else _markdown_escape(_joined(cell)) for cell in row] for row in panel.rows]
        body = "\n".join(markdown_rows(self.columns, lines))
        said = f"{_markdown_escape(self.sentence)}\n\n" if self.sentence else ""
        return f"### {self.title}\n\n{said}{self.caption}\n\n{body}\n"

    def latex(self) -> str:
        """A ``booktabs`` table over both columns of a page, never wider than they are, with every note in its caption.

        Needs ``graphicx`` and ``booktabs``. An interval stands in small print below its value.
        """
        spec = "".join("r" if column.kind in NUMERIC else "l" for column in self.columns)
        head = " & ".join(latex_escape(column.title) for column in self.columns)
        rows = []
        for place, panel in enumerate(self.panels()):
            if panel.heading:
                rule = [r"\midrule"] if place else []
                rows += [
                    *rule,
                    rf"\multicolumn{{{len(spec)}}}{{@{{}}l}}{{\textit{{{latex_escape(panel.heading)}}}}} \\",
                ]
            for row in panel.rows:
                rows += _latex_lines(row)
        return "\n".join(
            [
                r"\begin{table*}[t]",
                r"\centering\small",
                *fitted_tabular(spec, [head + r" \\", r"\midrule", *rows]),
                rf"\caption{{{latex_escape(' '.join(filter(None, (self.title + '.', self.sentence, self.caption))))}}}",
                rf"\label{{tab:{self.name}}}",
                r"\end{table*}",
                "",
            ]
        )

    def write(self, folder: Path, runs: Sequence[NamedRun] = ()) -> None:
        """Writes NAME.csv, NAME.md and NAME.tex."""
        folder.mkdir(parents=True, exist_ok=True)
        for suffix, text in (("csv", self.csv(runs)), ("md", self.markdown()), ("tex", self.latex())):
            write_whole(folder / f"{self.name}.{suffix}", text.encode())


def unlettered(heading: str) -> str:
    """A panel's heading as people read it: without the letter that orders panels in records and files."""
    return re.sub(r"(^| · )[A-Z]\. ", r"\1", heading)


def markdown_rows(columns: Sequence[TableColumn | str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table, numbers to the right; cells are Markdown already.

    A column that is given by its title alone holds words, here as in ``print_rows``.
    """
    told = _told(columns)
    rule = ["---:" if column.kind in NUMERIC else "---" for column in told]
    lines = [[column.title for column in told], rule, *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _told(columns: Sequence[TableColumn | str]) -> list[TableColumn]:
    return [TableColumn(column, column) if isinstance(column, str) else column for column in columns]


def print_rows(
    console: Console,
    columns: Sequence[TableColumn | str],
    rows: Iterable[Sequence[str | Text]],
    *,
    title: str = "",
    header: bool = True,
) -> None:
    """Prints lines of words as a table without a box; a cell may be a ``Text`` with a style of its own.

    Numbers stand to the right and stay whole in any width: their headings break between words, and what folds where
    the terminal is narrow is words.
    """
    _print_panels(console, _told(columns), [("", [list(row) for row in rows])], title=title, header=header, gap=2)


def _print_panels(
    console: Console,
    columns: Sequence[TableColumn],
    panels: Sequence[tuple[str, list[list[Any]]]],
    *,
    title: str,
    header: bool,
    gap: int,
) -> None:
    """Panels are tables of their own: what stands below one another has one width in all of them.

    Columns for which a terminal has no room follow below, behind the first column once more.
    """
    from rich import table as rich_table
    from rich.text import Text

    if not console.encoding.startswith("utf"):  # a terminal of few characters
        panels = [(heading, [[_plain(cell) for cell in row] for row in own]) for heading, own in panels]
    rows = [row for _, own in panels for row in own]
    widths = [max((len(line) for row in rows for line in _lines(row[i])), default=0) for i in range(len(columns))]
    least = [_least(column, [row[i] for row in rows], widths[i], i == 0) for i, column in enumerate(columns)]
    if title:
        console.print(Text(title, style="italic"))
    for block, numbers in enumerate(_blocks(least, console.width, gap)):
        if block:
            console.print()
        room = console.width - sum(least[i] + gap for i in numbers[1:])
        for place, (heading, own) in enumerate(panels):
            shown = rich_table.Table(
                box=None, pad_edge=False, padding=(0, gap, 0, 0), show_header=header and not place, highlight=False
            )
            for i in numbers:
                column = columns[i]
                if column.kind in NUMERIC:
                    head = Text("\n".join(column.title.split()))
                    shown.add_column(head, justify="right", no_wrap=True, min_width=least[i])
                else:
                    folded = min(widths[0], max(room, 1)) if not i else None
                    shown.add_column(Text(column.title), overflow="fold", min_width=folded)
            for row in own:
                first = row[0] if isinstance(row[0], Text) else Text(_between_words(str(row[0]), room))
                shown.add_row(first, *(row[i] if isinstance(row[i], Text) else Text(str(row[i])) for i in numbers[1:]))
            if heading:
                console.print(Text(heading, style="italic"))
            console.print(shown)


def _lines(cell: Any) -> list[str]:
    return str(cell).split("\n")


def _least(column: TableColumn, cells: Sequence[Any], width: int, is_first: bool) -> int:
    """Characters below which a column would be cut: of numbers all, of words the longest, in the first not too few."""
    if column.kind in NUMERIC:
        return max([width, *map(len, column.title.split())])
    if not is_first:
        return max((len(word) for text in (column.title, *map(str, cells)) for word in text.split()[:1]), default=0)
    pieces = [len(piece.rstrip()) for cell in cells for line in _lines(cell) for piece in WITHIN_NAMES.split(line)]
    return max([min(width, LONG_WORDS), *(size for size in pieces if size <= LONGEST_PIECE)])


def _blocks(least: Sequence[int], width: int, gap: int) -> list[list[int]]:
    """Which columns stand side by side: all that fit, the others below, each time behind the first."""
    blocks: list[list[int]] = [[0]] if least else []
    for number in range(1, len(least)):
        taken = least[0] + sum(gap + least[i] for i in blocks[-1][1:])
        if len(blocks[-1]) > 1 and taken + gap + least[number] > width:
            blocks.append([0])
        blocks[-1].append(number)
    return blocks


def _between_words(text: str, width: int) -> str:
    """A name in lines of at most ``width``, broken behind its signs; behind underscores where that is not enough."""
    broken = []
    for line in _lines(text):
        signs = BETWEEN_NAMES if all(len(part) <= width for part in BETWEEN_NAMES.split(line)) else WITHIN_NAMES
        now = ""
        for piece in signs.split(line):
            if now and len(now) + len(piece.rstrip()) > width:
                broken.append(now.rstrip())
                now = ""
            now += piece
        broken.append(now)
    return "\n".join(broken)


def _plain(cell: Any) -> Any:
    """The signs of ``format_value`` in ASCII."""
    return cell.translate(_ASCII) if isinstance(cell, str) else cell


def format_value(value: Any, kind: Kind, digits: int = 3) -> str:
    """A value as it is printed anywhere in the report; missing and non-finite values are a dash.

    ``digits`` are those behind the point of scores and signed values.
    """
    if value is None or (isinstance(value, float) and not math.isfinite(value)) or type(value).__name__ == "NAType":
        return MISSING  # the last is pandas' NA, told without pandas
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
    text = f"{number:+.{digits}f}" if kind == "signed" else f"{number:.{digits}f}"
    return text.lstrip("+-") if float(text) == 0.0 else text.replace("-", MINUS)


def format_range(low: Any, high: Any, kind: Kind) -> str:
    """An interval as printed: ``−0.014 to +0.020``, or ``0.74–0.82`` where no sign can be mistaken for a dash."""
    left, right = format_value(low, kind), format_value(high, kind)
    if MISSING in (left, right):
        return ""
    if left == right and kind in ("score", "signed"):  # no interval is so narrow that its ends are one number
        digits = digits_apart(float(low), float(high))
        left, right = format_value(low, kind, digits), format_value(high, kind, digits)
    return f"{left} to {right}" if kind == "signed" else f"{left.removesuffix('%')}–{right}"


def digits_apart(low: float, high: float) -> int:
    """Digits behind the point at which two ends are printed as two numbers; the usual 3 where that is enough."""
    return next((digits for digits in range(3, 10) if round(low, digits) != round(high, digits)), 3)


def fitted_tabular(spec: str, rows: Sequence[str]) -> list[str]:
    """LaTeX's lines of a tabular in booktabs, made smaller where it is wider than the text."""
    return [
        r"\sbox0{%",
        rf"\begin{{tabular}}{{@{{}}{spec}@{{}}}}",
        r"\toprule",
        *rows,
        r"\bottomrule",
        r"\end{tabular}}%",
        r"\ifdim\wd0>\textwidth\resizebox{\textwidth}{!}{\usebox0}\else\usebox0\fi",
    ]


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
    return Cell(text, interval, sort, numeric, str(record.get(column.link) or "") if column.link else "")


def _latex_lines(row: list[Cell]) -> list[str]:
    """A row, and below it the intervals of its cells where they have any."""
    values = " & ".join("" if cell.again else latex_escape(cell.text) for cell in row)
    if not any(cell.interval for cell in row):
        return [values + r" \\"]
    bounds = (rf"{{\scriptsize {latex_escape(cell.interval)}}}" if cell.interval else "" for cell in row)
    return [values + r" \\[-2pt]", " & ".join(bounds) + r" \\"]


def _joined(cell: Cell, between: str = " ") -> str:
    return f"{cell.text}{between}({cell.interval})" if cell.interval else cell.text


def _markdown_escape(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
    return escaped.replace("<", "&lt;").replace(">", "&gt;")
