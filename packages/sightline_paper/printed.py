"""A table as it is run and printed: measured, the published value beside each in the paper's arrangement."""

from __future__ import annotations

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
from markupsafe import Markup

from sightline.core.table import (
    MISSING,
    TableColumn,
    fitted_tabular,
    format_range,
    format_value,
    latex_escape,
    markdown_rows,
)
from sightline.errors import SightlineError
from sightline.places.writing import write_whole
from sightline.report import page as report_page
from sightline.version import __version__
from sightline_paper.claims import Claim, Judgement, corrected
from sightline_paper.lines import NOTHING, Line, Measured
from sightline_paper.models import MODELS
from sightline_paper.needs import Need, StudyOptions, merged
from sightline_paper.paper_table import PAPER_TABLES, Block, PaperTable, in_order
from sightline_paper.study import DETECTOR, PROBE_SETS, Study, scorer_of


@dataclass(frozen=True)
class PrintedCell:
    """``published`` and ``measured`` as printed, ``interval`` of the latter; a dash where there is none."""

    published: str
    measured: str
    interval: str = ""

    @property
    def joined(self) -> str:
        measured = f"{self.measured} ({self.interval})" if self.interval else self.measured
        return f"{self.published} | {measured}"


@dataclass(frozen=True)
class PrintedLine:
    line: Line
    words: tuple[str, ...]
    """Those of the line, with what stood in for something named as such."""
    cells: tuple[Measured, ...]
    why_not: str = ""
    """Why nothing was measured."""


@dataclass(frozen=True)
class PrintedBlock:
    block: Block
    lines: tuple[PrintedLine, ...]

    @property
    def measured_lines(self) -> int:
        return sum(not line.why_not for line in self.lines)

    def panels(self) -> Iterator[tuple[str, list[tuple[tuple[str, ...], list[PrintedCell]]]]]:
        """(panel, lines as printed), in the order of the paper."""
        for panel in dict.fromkeys(line.line.panel for line in self.lines):
            lines = (found for found in self.lines if found.line.panel == panel)
            yield panel, [(found.words, self._cells(found)) for found in lines]

    def _cells(self, found: PrintedLine) -> list[PrintedCell]:
        return list(map(_cell, self.block.columns, found.line.published, found.cells))


DEMONSTRATION = (
    "DEMONSTRATION: a small reader and random models on a few drawn pages. The measured figures show that the preset "
    "runs, and are no replication of the published ones."
)


@dataclass(frozen=True)
class PrintedTable:
    """One table of the paper, measured as far as the study allows."""

    table: PaperTable
    blocks: tuple[PrintedBlock, ...]
    judgements: tuple[tuple[Claim, Judgement], ...]
    demo: bool = False
    notes: tuple[str, ...] = field(default=())

    @property
    def heading(self) -> str:
        return f"Table {self.table.number}. {self.table.title}"

    @property
    def warning(self) -> str:
        """What must stand beside the numbers of a demonstration."""
        return DEMONSTRATION if self.demo else ""

    @property
    def measured_lines(self) -> int:
        return sum(block.measured_lines for block in self.blocks)

    @property
    def state(self) -> str:
        return f"{self.measured_lines} of {sum(len(block.lines) for block in self.blocks)} lines measured"

    @property
    def missing(self) -> list[str]:
        """Why lines were not measured, each reason once, with how many lines it concerns."""
        reasons = Counter(line.why_not for block in self.blocks for line in block.lines if line.why_not)
        return [f"{count} line{'s' if count > 1 else ''} not measured: {reason}" for reason, count in reasons.items()]

    @property
    def family(self) -> str:
        """What all outcomes of the table share."""
        tested = sum(not math.isnan(judgement.p) for _, judgement in self.judgements)
        return f"Outcomes of these {tested} tests are corrected for their number (Holm)." if tested > 1 else ""

    @property
    def claims(self) -> list[tuple[str, str, str]]:
        """(outcome, sentence of the paper, what the rows say)."""
        return [(judgement.outcome, claim.sentence, judgement.words) for claim, judgement in self.judgements]

    def plain_lines(self) -> Iterator[str]:
        """For a terminal: two lines each, measured and published; intervals are on the page and in the files."""
        for printed in self.blocks:
            block = printed.block
            if block.title:
                yield f"  {block.title}"
            rows: list[tuple[str, list[str]]] = [(" · ".join(block.words), [column.title for column in block.columns])]
            for panel, found in printed.panels():
                rows += [(panel, [])] if panel else []
                for words, cells in found:
                    rows.append((" · ".join(filter(None, words)), [cell.measured for cell in cells]))
                    rows.append(("  paper", [cell.published for cell in cells]))
            first = max(len(name) for name, texts in rows if texts)
            widths = [max(len(texts[i]) for _, texts in rows if texts) for i in range(len(block.columns))]
            for name, texts in rows:
                yield "  ".join([f"{name:<{first}}", *map(str.rjust, texts, widths)]).rstrip()

    def markdown(self) -> str:
        parts = [f"### {self.heading}", *([f"**{self.warning}**"] if self.demo else []), self.table.about]
        parts.append("Each cell: published | measured (95% interval).")
        for printed in self.blocks:
            if printed.block.title:
                parts.append(f"**{printed.block.title}**")
            columns: list[TableColumn | str] = [*printed.block.words, *printed.block.columns]
            lines = []
            for panel, found in printed.panels():
                if panel:
                    lines.append([f"*{panel}*", *[""] * (len(columns) - 1)])
                lines += [[*words, *(cell.joined.replace("|", "\\|") for cell in cells)] for words, cells in found]
            parts.append("\n".join(markdown_rows(columns, lines)))
        parts += [f"- **{outcome}**: {sentence} {words}" for outcome, sentence, words in self.claims]
        parts += [*filter(None, [self.family]), *self.missing, *self.notes]
        return "\n\n".join(parts) + "\n"

    def latex(self) -> str:
        """One ``table*`` per block: needs ``booktabs`` and ``graphicx``."""
        return "\n".join(self._latex_block(number, printed) for number, printed in enumerate(self.blocks))

    def _latex_block(self, number: int, printed: PrintedBlock) -> str:
        block = printed.block
        spec = "l" * len(block.words) + "r" * len(block.columns)
        heads = [*block.words, *(column.title for column in block.columns)]
        body: list[str] = []
        for panel, found in printed.panels():
            if panel:
                body += [r"\midrule", rf"\multicolumn{{{len(heads)}}}{{l}}{{\textit{{{latex_escape(panel)}}}}} \\"]
            for words, cells in found:
                body += _latex_lines(words, cells)
        rule = [] if body and body[0] == r"\midrule" else [r"\midrule"]
        caption = " ".join(filter(None, (self.heading + ".", block.title, self.warning, self.table.about)))
        caption += " Each line: measured, its 95% interval, and in italics as published."
        return "\n".join(
            [
                r"\begin{table*}[t]",
                r"\centering\small\renewcommand{\arraystretch}{0.85}",
                *fitted_tabular(spec, [" & ".join(map(latex_escape, heads)) + r" \\", *rule, *body]),
                rf"\caption{{{latex_escape(caption)}}}",
                rf"\label{{tab:paper-{self.table.number.lower()}{'' if number == 0 else f'-{number + 1}'}}}",
                r"\end{table*}",
                "",
            ]
        )

    def csv(self) -> str:
        """One line per cell at full precision, with the interval measured and, where there is one, the published."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(["block", "panel", "line", "column", "published", "measured", "low", "high", "why_not",
                         "published_low", "published_high"])  # fmt: skip
        for printed in self.blocks:
            for found in printed.lines:
                for column, published, cell in zip(
                    printed.block.columns, found.line.published, found.cells, strict=True
                ):
                    stated = published if isinstance(published, Measured) else Measured(published)
                    ends, stated_ends = (
                        ["" if math.isnan(end) else repr(end) for end in (each.low, each.high)]
                        for each in (cell, stated)
                    )
                    name = " · ".join(found.words)
                    value = "" if cell.value is None else cell.value
                    writer.writerow(
                        [printed.block.title, found.line.panel, name, column.title, stated.value, value, *ends,
                         found.why_not, *stated_ends]
                    )  # fmt: skip
        return out.getvalue()

    def write(self, folder: Path) -> None:
        """Writes table-NUMBER.{csv,md,tex}."""
        folder.mkdir(parents=True, exist_ok=True)
        for suffix, text in (("csv", self.csv()), ("md", self.markdown()), ("tex", self.latex())):
            write_whole(folder / f"table-{self.table.number.lower()}.{suffix}", text.encode())


def _latex_lines(words: Sequence[str], cells: Sequence[PrintedCell]) -> list[str]:
    """A line as three: measured, the intervals where there are any, published."""
    blank = [""] * len(words)
    rows = [[*map(latex_escape, words), *(latex_escape(cell.measured) for cell in cells)]]
    if any(cell.interval for cell in cells):
        small = (rf"{{\scriptsize {latex_escape(cell.interval)}}}" if cell.interval else "" for cell in cells)
        rows.append([*blank, *small])
    rows.append([*blank, *(rf"{{\scriptsize\itshape {latex_escape(cell.published)}}}" for cell in cells)])
    return [" & ".join(row) + r" \\" for row in rows]


def measured(study: Study, table: PaperTable, said: Iterable[str] = ()) -> PrintedTable:
    """Every line of a table from the rows that the study has; what it lacks is a dash with its reason.

    ``said`` was noted while its rows were computed.
    """
    with study.noting() as noted:
        study.servable(table.needs())  # says what is left out
        blocks = tuple(
            PrintedBlock(block, tuple(_measure(study, block, line) for line in block.lines)) for block in table.blocks
        )
        judged = corrected([claim.judge(study, table.models()) for claim in table.claims])
    judgements = tuple(zip(table.claims, judged, strict=True))
    return PrintedTable(table, blocks, judgements, study.options.demo, tuple(dict.fromkeys((*said, *noted))))


def _measure(study: Study, block: Block, line: Line) -> PrintedLine:
    words = row_words(study, line)
    try:
        cells = tuple(block.measure(study, line))
    except SightlineError as error:
        return PrintedLine(line, words, (NOTHING,) * len(block.columns), str(error))
    return PrintedLine(line, words, cells)


def row_words(study: Study, line: Line) -> tuple[str, ...]:
    """The words of a line, with what was measured in place of what they name."""
    swaps: list[tuple[str, tuple[str, ...]]] = []
    if line.box_source == DETECTOR and study.detector not in (None, DETECTOR):
        swaps.append((str(study.detector), ("EasyOCR",)))
    if name := study.stand_in(line.model):
        swaps.append((name, (MODELS[line.model].title, MODELS[line.model].short)))
    found = list(line.words)
    for instead, names in swaps:
        places = [(place, name) for name in names for place, word in enumerate(found) if name in word]
        if places:
            place, name = places[0]
            found[place] = found[place].replace(name, f"{instead} for {name}", 1)
        else:
            found[0] = f"{found[0]} ({instead} for {names[-1]})"
    return tuple(found)


def _cell(column: TableColumn, published: float | str | Measured | None, measured: Measured) -> PrintedCell:
    interval = format_range(measured.low, measured.high, column.kind) if column.interval else ""
    return PrintedCell(published_text(published, column), published_text(measured.value, column), interval)


def published_text(value: float | str | Measured | None, column: TableColumn) -> str:
    """A cell as the paper prints it; behind a number its interval, where one was published."""
    if isinstance(value, Measured):
        return f"{published_text(value.value, column)} ({format_range(value.low, value.high, column.kind)})"
    return value if isinstance(value, str) else MISSING if value is None else format_value(value, column.kind)


def notes_below(table: PrintedTable) -> Sequence[str]:
    """What a terminal is told beside the table itself."""
    return [*filter(None, [table.family]), *table.missing, *table.notes]


# A table in words: what it needs, the commands it stands for, its published values and its claims.


def explained(table: PaperTable) -> str:
    return "\n".join(_explained(table))


def _explained(table: PaperTable) -> Iterator[str]:
    yield f"Table {table.number}. {table.title}"
    yield table.about
    needs = merged(table.needs())
    if needs:
        yield "\nProbe sets"
        for name in dict.fromkeys(need.probes for need in needs):
            yield f"  {name}: {PROBE_SETS[name].about}"
            yield f"    {PROBE_SETS[name].command}"
        yield "\nRuns (shared with other tables; arms are added to what is there)"
        for need in needs:
            yield f"  {command(need)}"
    for requires in dict.fromkeys(block.requires for block in table.blocks if block.requires):
        yield f"\nAlso needs {requires}"
    for block in table.blocks:
        yield f"\nPublished{f': {block.title}' if block.title else ''}"
        yield from _published(block)
    if table.claims:
        yield "\nClaims"
        yield from (f"  {claim.sentence}" for claim in table.claims)
    yield ""


def command(need: Need) -> str:
    """The ``sightline run`` that a need stands for."""
    model = MODELS[need.model]
    parts = [
        "sightline run",
        f"--model {model.checkpoint}",
        f"--probes {PROBE_SETS[need.probes].file}",
        PROBE_SETS[need.probes].images,
        f"--dtype {model.dtype(need.probes)}",
        "--no-matched-controls",
        *(f"--image-option {name}={value}" for name, value in model.images(scorer_of(need)).items()),
        *([] if need.box_source == "annotation" else [f"--box-source {need.box_source}"]),
        *([f"--scorer {need.scorer}"] if need.scorer else []),
        *(f"--arm {arm}" for arm in need.arms),
        f"--out runs/{need.folder}",
    ]
    return " ".join(parts)


def _published(block: Block) -> Iterator[str]:
    heads = [*block.words, *(column.title for column in block.columns)]
    rows = [heads]
    for line in block.lines:
        cells = [published_text(value, column) for column, value in zip(block.columns, line.published, strict=True)]
        rows.append([*line.words, *cells])
    widths = [max(len(row[i]) for row in rows) for i in range(len(heads))]
    panel = ""
    for number, row in enumerate(rows):
        if number and block.lines[number - 1].panel != panel:
            panel = block.lines[number - 1].panel
            yield f"  {panel}"
        yield "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


# Running tables in a study: rows that a table lacks, the page of all that were measured, and how far each is.

TEMPLATE = Path(__file__).with_name("study_page.html")
HTML = "paper.html"


def run_table(study: Study, table: PaperTable) -> PrintedTable:
    """Computes the rows that a table lacks and measures it."""
    study.record()
    with study.noting() as said:
        study.compute(table.needs())
        for block in table.blocks:
            if block.prepare is not None:
                block.prepare(study, block.lines)
    study.record([table.number])
    return measured(study, table, said)


def with_earlier(study: Study, fresh: Sequence[PrintedTable]) -> list[PrintedTable]:
    """The tables just measured among those that were run in this folder before, in the order of the paper."""
    found = {printed.table.number: printed for printed in fresh}
    for number in study.recorded().get("tables", []):
        if number not in found and number in PAPER_TABLES:
            found[number] = measured(study, PAPER_TABLES.get(number))
    return [found[number] for number in in_order(found)]


def write_paper_page(study: Study, tables: Sequence[PrintedTable]) -> Path:
    """Writes ``paper.html`` and ``tables/`` into the study's folder."""
    for printed in tables:
        printed.write(study.out / "tables")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    text = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        title="The paper's tables, measured again",
        facts=[
            *((MODELS[name].title, Path(path).name) for name, path in study.models.items()),
            ("images", f"{study.limit or 500} a set"),
            ("profile", study.options.profile),
            ("draws", str(study.options.draws)),
        ],
        warning=next((printed.warning for printed in tables), ""),
        tables=tables,
        version=__version__,
        css=Markup((report_page.HERE / "report.css").read_text(encoding="utf-8")),
    )
    path = study.out / HTML
    write_whole(path, text.encode())
    return path


def opened(out: Path) -> Study:
    """A study as its folder records it."""
    bare = object.__new__(Study)
    bare.out = out
    record = bare.recorded()
    options = StudyOptions(
        demo=bool(record.get("demo")),
        profile=str(record.get("profile", "paper")),
        limit=record.get("limit"),
        lite=bool(record.get("lite")),
    )
    return Study(out, {}, options=options)


def state_in(out: Path, table: PaperTable) -> str:
    """``measured``, ``3 of 5 runs finished``, ``not run``; with ``(demo)`` where that is what it was."""
    study = opened(out)
    record = study.recorded()
    if not record:
        return "not run"
    needs = merged(table.needs())
    given = [need for need in needs if need.model in study.models]
    done = sum(not study.missing(need) for need in study.servable(given))
    mark = " (demo)" if study.options.demo else ""
    if table.number in record.get("tables", []):
        lacking = len(needs) - len(given)
        return f"measured{f', {lacking} runs lack a checkpoint' if lacking else ''}{mark}"
    if done:
        return f"{done} of {len(needs)} runs finished{mark}"
    return "not run"
