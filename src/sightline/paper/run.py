"""Running tables in a study: rows that a table lacks, the page of all that were measured, and how far each is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup

from sightline.paper.models import MODELS
from sightline.paper.needs import StudyOptions, merged
from sightline.paper.paper_table import PAPER_TABLES, PaperTable, in_order
from sightline.paper.printed import PrintedTable, measured
from sightline.paper.study import Study
from sightline.places.writing import write_whole
from sightline.report import page as report_page
from sightline.version import __version__

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
    images = "500 a set" if study.limit is None else f"{study.limit} a set"
    text = environment.from_string(TEMPLATE.read_text(encoding="utf-8")).render(
        title="The paper's tables, measured again",
        facts=[
            *((MODELS[name].title, Path(path).name) for name, path in study.models.items()),
            ("images", images),
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
