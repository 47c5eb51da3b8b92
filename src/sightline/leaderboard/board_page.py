"""From a record to what people read: ``leaderboard.html``, ``leaderboard.md``, and the tables as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from sightline import __version__
from sightline.arms.plan import MATCHED
from sightline.leaderboard.board_record import Record, record_text
from sightline.leaderboard.standings import COVERAGE
from sightline.leaderboard.tables import budget_table, overview_table, refused_table
from sightline.places.writing import make_folder, write_whole
from sightline.report.arm_words import listed
from sightline.report.charts import NARROW, FrontierPoint, frontier
from sightline.report.metric_columns import heading
from sightline.report.page import Page, render
from sightline.report.panels import BOX_FREE, panel_of
from sightline.report.sections import Section
from sightline.report.sections.base import ChartGroup, Part
from sightline.report.sections.frontier import GLYPHS
from sightline.report.table import format_range, format_value
from sightline.statistics.metrics import METRICS

NAME = "leaderboard"
RISK = "unsupported"


def write_leaderboard(record: Record, out: Path) -> Path:
    """Writes ``leaderboard.json``, ``.md``, ``.html`` and ``tables/``; returns the path of the page."""
    page = _page(record)
    make_folder(out / "tables")
    page.write_tables(out / "tables")
    write_whole(out / f"{NAME}.json", record_text(record).encode())
    write_whole(out / f"{NAME}.md", markdown(record).encode())
    path = out / f"{NAME}.html"
    write_whole(path, render(page).encode())
    return path


def markdown(record: Record) -> str:
    """Everything but the charts, as Markdown."""
    tables = [overview_table(record)]
    for model in record["models"]:
        tables += [budget_table(record, model, budget) for budget in model["standings"]]
        refused = refused_table(model)
        tables += [refused] if refused is not None else []
    said = [*headlines(record), *notes(record), method_words(record), f"Digest without times: `{record['digest']}`."]
    return "\n\n".join([*said, *(table.markdown().rstrip() for table in tables)]) + "\n"


def headlines(record: Record) -> list[str]:
    """What the middle budget comes to on each model whose answers say something, a sentence or two for each."""
    budget = record["budgets"][len(record["budgets"]) // 2]
    return [_headline(record, model, budget) for model in record["models"] if model.get("ranked", True)]


def _headline(record: Record, model: Record, budget: str) -> str:
    by = METRICS[record["ranked_by"]]
    own = [line for line in model["standings"][budget] if line["panel"] == BOX_FREE and line["rank"] is not None]
    methods = [line for line in own if line["role"] == "method"]
    better = [line for line in methods if _surely_better(line, by.better)]
    first = own[0]
    equals = listed([line["method"] for line in own if line["rank"] == 1], 2)
    tied = sum(line["tied_with_first"] for line in own)
    alone = f"{tied} other{'s are' if tied > 1 else ' is'} not separable from the first" if tied else "nobody ties"
    value = format_value(first[by.name], "score")
    interval = format_range(first[f"{by.name}_low"], first[f"{by.name}_high"], "score")
    full = format_value(model["full"][by.name], "score")
    verb = "is" if equals == first["method"] else "are"
    return (
        f"{model['name']} at {budget}: first of {len(own)} box-free entries with {by.label} {value} ({interval}) "
        f"{verb} {equals}; {alone}. Full has {full}. {len(better)} of {len(methods)} box-free methods "
        "are better than Random beyond their interval."
    )


def _surely_better(line: dict[str, Any], direction: str) -> bool:
    low, high = line["gain_low"], line["gain_high"]
    if low is None or high is None:
        return False
    return bool(low > 0.0 if direction == "higher" else high < 0.0)


def notes(record: Record) -> list[str]:
    return [*record["notes"], *(f"{model['name']}: {note}" for model in record["models"] for note in model["notes"])]


def method_words(record: Record) -> str:
    return (
        f"{record['probes']} probes on {record['pages']} images. Intervals are 95% percentiles of {record['draws']} "
        f"seeded draws (seed {record['seed']}) that resample images with all their probes; differences are paired "
        "within each draw, one method at a time: no correction is made for how many are compared. Coverage is "
        "geometric availability of annotated evidence, not proof that the model used it. Methods run with their "
        "default arguments, which nobody tuned for these models."
    )


def _page(record: Record) -> Page:
    names = ", ".join(model["name"] for model in record["models"])
    return Page(
        title=f"Leaderboard of visual-token pruning on {names}",
        facts=[_facts(record, model) for model in record["models"]],
        notes=notes(record),
        verdicts=[],
        overview=[overview_table(record)],
        sections=[_section(record, model) for model in record["models"]],
        packed=None,
        hero=None,
        method=f"{method_words(record)} Digest without times: {record['digest']}. Made by Sightline {__version__}.",
        headline=headlines(record),
    )


def _facts(record: Record, model: Record) -> list[tuple[str, str]]:
    taking_part = {line["method"] for lines in model["standings"].values() for line in lines}
    return [
        ("Model", model["name"]),
        ("type", model["model_type"]),
        ("images", str(record["pages"])),
        ("probes", str(record["probes"])),
        ("budgets", ", ".join(record["budgets"])),
        ("entries", f"{len(taking_part)}, {len({line['method'] for line in model['refused']})} refused"),
        ("device", f"{model['device']}, {model['dtype']}"),
        ("boxes", model["box_source"]),
    ]


def _section(record: Record, model: Record) -> Section:
    place = 1 + record["models"].index(model)
    lead = (
        "Right answers upwards, surviving evidence to the right, right answers without any evidence as colour. Named "
        "are Full, the matched controls and whoever of the others, oracles apart, nobody beats in both; the table has "
        "all."
    )
    section = Section(f"model-{place}", str(model["name"]), lead)
    for budget in model["standings"]:
        table = budget_table(record, model, budget)
        section.parts.append(Part(f"At {budget}", [], [], _charts(record, model, budget), [table]))
    refused = refused_table(model)
    if refused is not None:
        section.parts.append(Part("Does not take part", [], [], [], [refused]))
    return section


def _charts(record: Record, model: Record, budget: str) -> list[ChartGroup]:
    by = record["ranked_by"]
    lines = [model["full"], *model["standings"][budget]]
    points = [_point(line, by) for line in lines if line[by] is not None and line.get(COVERAGE) is not None]
    if not points:
        return []
    x, y, colour = (heading(METRICS[name], pd.DataFrame(lines)) for name in (COVERAGE, by, RISK))
    wide = frontier(points, x, y, colour, class_="chart only-wide")
    narrow = frontier(points, x, y, colour, size=NARROW, class_="chart only-narrow")
    return [ChartGroup("", [wide, narrow])]


def _point(line: dict[str, Any], by: str) -> FrontierPoint:
    is_full = line["regime"] == "full"
    named = is_full or line["method"] in MATCHED or (line["on_frontier"] and line["regime"] != "oracle")
    risk = line.get(RISK)
    return FrontierPoint(
        "Full" if is_full else line["method"] + (" (oracle)" if line["regime"] == "oracle" else ""),
        line[COVERAGE],
        line[by],
        float("nan") if risk is None else risk,
        _range(line, COVERAGE) if named else None,
        _range(line, by) if named else None,
        *(("diamond", "Full") if is_full else GLYPHS[panel_of(line["regime"])]),
        named=named,
    )


def _range(line: dict[str, Any], name: str) -> tuple[float, float] | None:
    low, high = line[f"{name}_low"], line[f"{name}_high"]
    return None if low is None or high is None else (low, high)
