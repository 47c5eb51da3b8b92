"""Running a table: what it needs, then what it says; and every table of a study that has been run."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from sightline.paper.paper_table import PAPER_TABLES, PaperTable
from sightline.paper.printed import PrintedTable, measured
from sightline.paper.study import Study


def run_table(study: Study, table: type[PaperTable]) -> PrintedTable:
    """Computes the rows that a table lacks and measures it."""
    study.record()
    with study.noting() as said:
        study.compute(table.needs())
        for block in table.blocks:
            if block.prepare is not None:
                block.prepare(study)
    study.record([table.number])
    return measured(study, table, said)


def with_earlier(study: Study, fresh: Sequence[PrintedTable]) -> list[PrintedTable]:
    """The tables just measured among those that were run in this folder before, in the order of the paper."""
    found = {printed.table.number: printed for printed in fresh}
    for number in study.recorded().get("tables", []):
        if number not in found and number in PAPER_TABLES:
            found[number] = measured(study, PAPER_TABLES.get(number))
    return [found[number] for number in in_order(found)]


def in_order(numbers: Iterable[str]) -> list[str]:
    """Main tables first, then the supplement's, each by number; then those of other papers, by name."""

    def place(number: str) -> tuple[int, int, str]:
        plain = re.fullmatch(r"(S?)(\d+)", number)
        return (2, 0, number) if plain is None else (len(plain[1]), int(plain[2]), number)

    return sorted(numbers, key=place)
