"""Running a table: what it needs, then what it says; and every table of a study that has been run."""

from __future__ import annotations

from collections.abc import Sequence

from sightline.paper.printed import PrintedTable, measured
from sightline.paper.study import Study
from sightline.paper.table import PAPER_TABLES, PaperTable


def run_table(study: Study, table: type[PaperTable]) -> PrintedTable:
    """Computes the rows that a table lacks and measures it."""
    study.record()
    study.compute(table.needs())
    for block in table.blocks:
        if block.prepare is not None:
            block.prepare(study)
    study.record([table.number])
    return measured(study, table)


def measured_tables(study: Study, wanted: Sequence[type[PaperTable]]) -> list[PrintedTable]:
    """The tables that were run in this folder, those just run among them, in the order of the paper."""
    numbers = {*study.recorded().get("tables", []), *(table.number for table in wanted)}
    known = [PAPER_TABLES.get(number) for number in numbers if number in PAPER_TABLES]
    known.sort(key=lambda table: (table.number.startswith("S"), int(table.number.lstrip("S"))))
    return [measured(study, table) for table in known]
