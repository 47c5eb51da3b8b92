"""How far a table is measured in a study's folder, from what is on disk alone."""

from __future__ import annotations

from pathlib import Path

from sightline.paper.needs import merged
from sightline.paper.paper_table import PaperTable
from sightline.paper.study import Study, StudyOptions


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


def state_in(out: Path, table: type[PaperTable]) -> str:
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
