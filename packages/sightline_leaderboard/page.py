"""A record's tables: who stands where over all models, on one model at one budget, and who does not take part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from sightline.arms.arm import MATCHED
from sightline.core.table import Kind, Table, TableColumn, format_range, format_value
from sightline.places.writing import make_folder, write_whole
from sightline.report.charts import FrontierPoint
from sightline.report.columns import (
    BOX_FREE,
    build_table,
    heading,
    in_these_words,
    listed,
    panel_of,
    share,
    table_column,
)
from sightline.report.page import Page, render
from sightline.report.sections import Section
from sightline.report.sections.base import ChartGroup, Part
from sightline.report.sections.frontier import GLYPHS, frontier_charts
from sightline.statistics.metrics import METRICS
from sightline.version import __version__
from sightline_leaderboard.standings import COVERAGE, RISKS, Record, record_text


def overview_table(record: Record) -> Table:
    """Mean rank over all models and budgets, and every rank behind it."""
    cells = [(model["name"], budget) for model in record["models"] for budget in model["standings"]]
    several = len(record["models"]) > 1
    lines = []
    for line in record["overview"]:
        ranks = {f"{rank['model']} {rank['budget']}": rank["rank"] for rank in line["ranks"]}
        partly = "" if line["cells"] == len(cells) else f" · ranked in {line['cells']} of {len(cells)} columns"
        lines.append({**line, **ranks, "panel": line["panel"] + partly})
    by = METRICS[record["ranked_by"]].label
    columns = {
        "gain": [table_column("gain", title=f"{by} − Random", help="Mean over the columns to the right.")],
        "ranks": [
            TableColumn(f"{model} {budget}", f"{model} at {budget}" if several else f"at {budget}", "count")
            for model, budget in cells
        ],
    }
    return _whole(build_table("overview", pd.DataFrame(lines), columns=columns, by=by))


def budget_table(record: Record, model: Record, budget: str) -> Table:
    """Full, then every entry of one model at one budget, panel after panel, best first."""
    columns, values = _columns(record, model, budget, [name for name in record["metrics"] if name not in RISKS])
    nobody = "" if model.get("ranked", True) else f"Nobody is ranked: {'; '.join(model['notes'])}. "
    said = {key: record[key] for key in ("probes", "pages")}
    made = build_table("at_budget", values, columns=columns, nobody=nobody, device=model["device"], **said)
    name = f"{_slug(model['name'])}_{_slug(budget)}"
    return replace(_whole(made), name=name, title=f"{model['name']} at {budget}")


def fields_table(record: Record, model: Record, budget: str) -> Table | None:
    """What becomes of fields under the same entries; None where answers are about nothing of the kind."""
    columns, values = _columns(record, model, budget, [name for name in record["metrics"] if name in RISKS])
    if not columns["metrics"]:
        return None
    made = build_table("fields_at_budget", values, columns=columns)
    name = f"{_slug(model['name'])}_{_slug(budget)}_fields"
    return replace(_whole(made), name=name, title=f"Risk by field, {model['name']} at {budget}")


def _columns(
    record: Record, model: Record, budget: str, names: Sequence[str]
) -> tuple[dict[str, list[TableColumn]], pd.DataFrame]:
    """The metric that ranks and those of some names that say anything else, and the lines of a table."""
    full = {**model["full"], "called": "Full", "panel": BOX_FREE, "tie": "", "frontier": ""}
    lines = [full, *(_in_words(line) for line in model["standings"][budget])]
    by = METRICS[record["ranked_by"]]
    told = [METRICS[name] for name in names if any(line.get(name) != line[by.name] for line in lines)]
    values = pd.DataFrame(lines)
    columns = []
    for metric in (metric for metric in told if values[metric.name].notna().any()):
        kind: Kind = "number" if metric.name == "legibility" else "score"
        title, words = heading(metric, values), in_these_words(metric.help, values)  # that fit answers of this kind
        columns.append(TableColumn(metric.name, title, kind, interval=metric.with_interval, help=words))
    return {"by": [TableColumn(by.name, by.label, "score", interval=True, help=by.help)], "metrics": columns}, values


def _budget_tables(record: Record, model: Record, budget: str) -> list[Table]:
    fields = fields_table(record, model, budget)
    return [budget_table(record, model, budget), *([fields] if fields is not None else [])]


def refused_table(model: Record) -> Table | None:
    """Who does not take part on a model, and why; None where everybody does."""
    if not model["refused"]:
        return None
    lines = [{**line, "budget": line["budget"] or "any"} for line in model["refused"]]
    made = build_table("refused", pd.DataFrame(lines), model=model["name"])
    return replace(made, name=f"{_slug(model['name'])}_refused", title=f"Not on {model['name']}")


def _in_words(line: dict[str, Any]) -> dict[str, Any]:
    """An entry with what its cells say: a control is called one, ties and frontier are spelled out."""
    tied = [name for name in ("next", "first") if line[f"tied_with_{name}"]]
    called = f"{line['method']} (control)" if line["role"] == "control" else line["method"]
    return {**line, "called": called, "tie": ", ".join(tied), "frontier": "yes" if line["on_frontier"] else ""}


def _whole(table: Table) -> Table:
    """The table with every column that it may look for: nobody may have a rank, or a lead."""
    absent = [column.key for column in table.columns if column.key not in table.frame]
    return replace(table, frame=table.frame.assign(**dict.fromkeys(absent)))


def _slug(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text).strip("-").lower()


# From a record to what people read: ``leaderboard.html``, ``leaderboard.md``, and the tables as files.

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
        tables += [table for budget in model["standings"] for table in _budget_tables(record, model, budget)]
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
    gains = [_range(line, "gain") for line in methods]
    better = sum((low > 0.0 if by.better == "higher" else high < 0.0) for low, high in filter(None, gains))
    first = own[0]
    equals = listed([line["method"] for line in own if line["rank"] == 1], 2)
    tied = sum(line["tied_with_first"] for line in own)
    alone = f"{tied} other{'s are' if tied > 1 else ' is'} not separable from the first" if tied else "nobody ties"
    value = format_value(first[by.name], "score")
    interval = format_range(first[f"{by.name}_low"], first[f"{by.name}_high"], "score")
    full = format_value(model["full"][by.name], "score")
    verb = "is" if equals == first["method"] else "are"
    # Who says nothing is never swapped: by such a metric silence wins.
    silent = first.get("silent") if by.name in RISKS and by.name != "silent" else None
    still = "" if silent is None else (
        f" Silence is not {by.label.lower()}: {first['method']} says nothing in {share(silent)} of answers, Full in "
        f"{share(model['full']['silent'])}."
    )  # fmt: skip
    return (
        f"{model['name']} at {budget}: first of {len(own)} box-free entries with {by.label} {value} ({interval}) "
        f"{verb} {equals}; {alone}. Full has {full}. {better} of {len(methods)} box-free methods "
        f"are better than Random beyond their interval.{still}"
    )


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
    by = METRICS[record["ranked_by"]]
    upwards = by.label if by.better == "higher" else f"{by.label} (less is better)"
    lead = (
        f"{upwards} upwards, surviving evidence to the right, right answers without any evidence as colour. Named "
        "are Full, the matched controls and whoever of the others, oracles apart, nobody beats in both; the table has "
        "all."
    )
    section = Section(f"model-{place}", str(model["name"]), lead)
    for budget in model["standings"]:
        tables = _budget_tables(record, model, budget)
        section.parts.append(Part(f"At {budget}", [], [], _charts(record, model, budget), tables))
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
    return [ChartGroup("", frontier_charts(points, x, y, colour))]


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
