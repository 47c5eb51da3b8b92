"""What a section is: something that makes, from what a report knows, what stands under one heading.

    @SECTIONS.register("latency")
    class Latency(SectionMaker):
        id = "latency"
        title = "Latency"
        order = 85

        def fill(self, section: Section, context: Context) -> None:
            section.add(lambda: latency_table(context.source))

is all that a new one needs. Another package names such a class in its entry-point group ``sightline.sections``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar

import pandas as pd
from markupsafe import Markup

from sightline.core.registry import Registry
from sightline.core.table import Table
from sightline.cost.card import CostCard
from sightline.errors import SightlineError
from sightline.geometry.marks import RegionMark
from sightline.report.columns import NoRowsError
from sightline.report.summary import ReportSummary
from sightline.report.verdict import MARGIN
from sightline.rows.source import Source

# What readers can ask the gallery for: filters and orders, by the kind of answers that its cases hold.
#
# The names are those that ``report.js`` knows.


@dataclass(frozen=True)
class Gallery:
    """(name, words) of every filter and order; ``{reference}`` in words is what answers are compared with."""

    filters: tuple[tuple[str, str], ...]
    orders: tuple[tuple[str, str], ...]


_CHOSEN, _COVERAGE = ("chosen", "as chosen"), ("ecr", "least coverage first")
_LOW, _WRONG, _SWAPPED = ("low", "low coverage"), ("wrong", "wrong answers"), ("swapped", "swapped")

YES_OR_NO = Gallery(
    (("all", "all cases"), ("unsupported", "unsupported"), ("flip", "flips vs {reference}"), _LOW, _WRONG),
    (_CHOSEN, _COVERAGE, ("margin", "largest margin first"), ("change", "largest change from {reference} first")),
)
IN_WORDS = Gallery(
    (
        ("all", "all cases"),
        ("unsupported", "right without evidence"),
        ("confident", "confident and wrong"),
        ("flip", "other than {reference}'s"),
        _LOW,
        _WRONG,
        _SWAPPED,
    ),
    (_CHOSEN, _COVERAGE, ("loss", "surest answer first"), ("fall", "largest fall of the score first")),
)
BOTH = Gallery((*YES_OR_NO.filters, IN_WORDS.filters[2], _SWAPPED), (*YES_OR_NO.orders, *IN_WORDS.orders[2:]))


SECTIONS: Registry[type[SectionMaker]] = Registry(
    "section", group="sightline.sections", package="sightline.report.sections"
)


@dataclass(frozen=True)
class NamedCard:
    """A cost card with what the report calls it."""

    file: str
    name: str
    """File stem of its tables; the kind, numbered where several cards are of one kind."""
    card: CostCard

    @property
    def model(self) -> str:
        return str(self.card.records()[0]["model"])


@dataclass(frozen=True)
class Context:
    """What a report knows when its sections are made."""

    source: Source
    summary: ReportSummary
    draws: int
    seed: int
    cards: Sequence[NamedCard] = ()
    margin: float = MARGIN
    """The loss of right answers that is accepted."""


@dataclass(frozen=True)
class ChartGroup:
    title: str
    figures: list[Markup]


@dataclass(frozen=True)
class Part:
    """One of several things of a kind that a section shows in turn: facts, notes, charts, tables, in this order."""

    title: str
    facts: list[tuple[str, list[tuple[str, str]]]]
    """Named lists of (what, in words)."""
    notes: list[str]
    charts: list[ChartGroup]
    tables: list[Table]


@dataclass
class Section:
    """One heading with what stands under it: a sentence, notes, charts, pictures, tables, parts, in this order."""

    id: str
    title: str
    lead: str = ""
    notes: list[str] = field(default_factory=list)
    charts: list[ChartGroup] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    pictures: bool = False
    gallery: Gallery = YES_OR_NO
    """What the pictures can be asked for."""
    marks: list[RegionMark] = field(default_factory=list)
    """How the pictures tell regions apart by their roles; empty where nobody said what they are."""
    parts: list[Part] = field(default_factory=list)
    in_overview: bool = False
    """Whether its finding also stands at the top of the page."""

    @property
    def sentence(self) -> str:
        """What its first table says in a sentence."""
        return next((table.sentence for table in self.tables if table.sentence), "")

    def add(self, make: Callable[[], Table | None]) -> None:
        """Appends a table, or the one line that says why there is none."""
        try:
            table = make()
        except NoRowsError:
            return
        except SightlineError as error:
            if str(error) not in self.notes:
                self.notes.append(str(error))
            return
        if table is not None:
            self.tables.append(table)


Needs = Callable[[Source], bool]
"""Whether the runs of a report hold something."""


def any_run_has(wanted: Callable[[pd.DataFrame], bool]) -> Needs:
    """Whether the rows of some run, plain ones and those under interventions, have what is wanted."""
    return lambda source: any(wanted(audited.rows) for audited in (*source.runs, *source.controls))


def answers_in_words(source: Source) -> bool:
    """Whether some run has answers that are texts with a score."""
    return bool(source.in_words)


class SectionMaker:
    """Makes one section; override ``fill``, or ``make`` where a section comes from elsewhere as a whole."""

    id: ClassVar[str]
    """The anchor in the page, and the name it is registered by."""
    title: ClassVar[str]
    order: ClassVar[int]
    """Its place in the page, smallest first."""
    lead: ClassVar[str] = ""
    """One sentence under the heading."""
    in_overview: ClassVar[bool] = False
    """Whether the sentence of its first table also stands at the top of the page."""
    needs: ClassVar[tuple[Needs, ...]] = ()
    """What a report must hold for it, one of these; a section without any is asked for in every report."""
    reads: ClassVar[tuple[str, ...]] = ()
    """Columns of rows that it looks at although reports leave them out otherwise (``rows.source.UNREAD``)."""

    def make(self, context: Context) -> Section | None:
        """The section, or None where the runs hold nothing for it."""
        if self.needs and not any(need(context.source) for need in self.needs):
            return None
        section = Section(self.id, self.title, self.lead, in_overview=self.in_overview)
        self.fill(section, context)
        filled = section.notes or section.charts or section.tables or section.pictures or section.parts
        return section if filled else None

    def fill(self, section: Section, context: Context) -> None:
        """Adds charts and tables; leaves the section as it is where there are none to make."""


def columns_read() -> frozenset[str]:
    """What all sections together ask for beside the columns that every report has."""
    found: set[str] = set()
    for name in SECTIONS:
        with suppress(Exception):  # a section that cannot be imported says so in its own place
            found.update(SECTIONS.get(name).reads)
    return frozenset(found)


def make_sections(context: Context, progress: Callable[[str], None] = lambda step: None) -> list[Section]:
    """Every section that the runs hold something for, in the order of the page."""
    found: list[tuple[int, Section]] = []
    for name in SECTIONS:
        try:
            maker = SECTIONS.get(name)()
        except Exception as error:  # Somebody else's package may lack anything; the report does not.
            found.append((2**31, _excuse(name, name, error)))
            continue
        progress(maker.title)
        section = make_section(maker, context)
        if section is not None:
            found.append((maker.order, section))
    return [section for _, section in sorted(found, key=lambda pair: pair[0])]


def make_section(maker: SectionMaker, context: Context) -> Section | None:
    """One section; one that fails keeps its place and says in one line why."""
    try:
        return maker.make(context)
    except Exception as error:  # Whatever is wrong with one section, the others are worth reading.
        return _excuse(maker.id, maker.title, error, maker.lead)


def _excuse(name: str, title: str, error: Exception, lead: str = "") -> Section:
    words = str(error) if isinstance(error, SightlineError) else f"{type(error).__name__}: {error}"
    return Section(name, title, lead, notes=[f"this section cannot be made: {' '.join(words.split())}"])
