"""A record's tables: who stands where over all models, on one model at one budget, and who does not take part."""

from __future__ import annotations

from typing import Any

import pandas as pd

from sightline.leaderboard.board_record import Record
from sightline.report.metric_columns import heading, in_these_words
from sightline.report.panels import BOX_FREE
from sightline.report.table import Kind, Table, TableColumn
from sightline.statistics.metrics import METRICS, Metric


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
    columns = [
        TableColumn("method", "Method"),
        TableColumn("place", "Place", "count", help="By mean rank, within the panel."),
        TableColumn("role", "Role"),
        TableColumn("mean_rank", "Mean rank", "number"),
        TableColumn("gain", f"{by} − Random", "signed", interval=True, help="Mean over the columns to the right."),
        *(
            TableColumn(f"{model} {budget}", f"{model} at {budget}" if several else f"at {budget}", "count")
            for model, budget in cells
        ),
    ]
    caption = (
        f"Ranks by {by} within a panel, per model and budget, and their mean. Means over different columns do not "
        "compare: methods that some model cannot serve stand in panels of their own. A rank is no verdict: the tables "
        "per budget say which neighbours the images can tell apart."
    )
    return Table("overview", "Over all models and budgets", caption, columns, _frame(lines, columns), panel="panel")


def budget_table(record: Record, model: Record, budget: str) -> Table:
    """Full, then every entry of one model at one budget, panel after panel, best first."""
    full = {**model["full"], "called": "Full", "panel": BOX_FREE, "tie": "", "frontier": ""}
    lines = [full, *(_in_words(line) for line in model["standings"][budget])]
    by = METRICS[record["ranked_by"]]
    told = [METRICS[name] for name in record["metrics"] if any(line.get(name) != line[by.name] for line in lines)]
    values = pd.DataFrame(lines)
    columns = [
        TableColumn("called", "Method"),
        TableColumn("rank", "Rank", "count"),
        TableColumn(by.name, by.label, "score", interval=True, help=by.help),
        TableColumn("gain", "− Random", "signed", interval=True, help="Paired difference to Random at this budget."),
        TableColumn("lead", "Lead", "signed", interval=True, help="Paired difference to the line below."),
        TableColumn("tie", "Tied with", help="Not separable: the interval of the paired difference holds zero."),
        *(_metric_column(metric, values) for metric in told if values[metric.name].notna().any()),
        TableColumn("keep_over_layers", "Kept", "score", help="Share of visual tokens, averaged over language layers."),
        TableColumn(
            "selection_ms",
            "Selection ms",
            "number",
            help="Median milliseconds per probe for signals and selection, on the device below.",
        ),
        TableColumn("frontier", "Frontier", help="No other of its panel has more right answers and more coverage."),
    ]
    caption = (
        f"{record['probes']} probes on {record['pages']} images; small print is the 95% interval when images are "
        "resampled. Ranks count within a panel, equal values share one. Lead is the difference to the line below; tied "
        "is what the images cannot tell apart: the next, or the first. Kept is more than the budget where a method "
        "prunes between language layers, whose first ones see every token. Selection was timed on "
        f"{model['device']} while auditing, not in a benchmark."
    )
    if not model.get("ranked", True):
        caption = f"Nobody is ranked: {'; '.join(model['notes'])}. {caption}"
    name = f"{_slug(model['name'])}_{_slug(budget)}"
    unprinted = ("method", "arm", "role", "regime")
    title = f"{model['name']} at {budget}"
    return Table(name, title, caption, columns, _frame(lines, columns), panel="panel", unprinted=unprinted)


def refused_table(model: Record) -> Table | None:
    """Who does not take part on a model, and why; None where everybody does."""
    if not model["refused"]:
        return None
    columns = [TableColumn("method", "Method"), TableColumn("budget", "Budget"), TableColumn("reason", "Why", "words")]
    lines = [{**line, "budget": line["budget"] or "any"} for line in model["refused"]]
    caption = f"Methods that {model['name']} cannot serve, in the words with which a run refuses them."
    title = f"Not on {model['name']}"
    return Table(f"{_slug(model['name'])}_refused", title, caption, columns, _frame(lines, columns))


def _metric_column(metric: Metric, values: pd.DataFrame) -> TableColumn:
    """In the words that fit the answers that these values are about."""
    kind: Kind = "number" if metric.name == "legibility" else "score"
    told = in_these_words(metric.help, values)
    return TableColumn(metric.name, heading(metric, values), kind, interval=metric.with_interval, help=told)


def _in_words(line: dict[str, Any]) -> dict[str, Any]:
    """An entry with what its cells say: a control is called one, ties and frontier are spelled out."""
    tied = [name for name in ("next", "first") if line[f"tied_with_{name}"]]
    called = f"{line['method']} (control)" if line["role"] == "control" else line["method"]
    return {**line, "called": called, "tie": ", ".join(tied), "frontier": "yes" if line["on_frontier"] else ""}


def _frame(lines: list[dict[str, Any]], columns: list[TableColumn]) -> pd.DataFrame:
    """The lines with every column that a table may look for."""
    frame = pd.DataFrame(lines)
    for column in columns:
        if column.key not in frame:
            frame[column.key] = None
    return frame


def _slug(text: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in text).strip("-").lower()
