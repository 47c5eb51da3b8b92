"""Ranking or operating point? Thresholds chosen on some images, judged on others; flips by direction."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pandas as pd
from markupsafe import Markup
from scipy.special import expit

from sightline.analysis.thresholds import choose_thresholds, evaluate, flips, predict, risk_constrained
from sightline.errors import SightlineError
from sightline.probes.split import hash_side
from sightline.report.charts import reliability
from sightline.report.metric_columns import metric_column, metric_columns
from sightline.report.sections.base import SECTIONS, ChartGroup, Context, Section, SectionMaker
from sightline.report.source import NO_MARGIN, Audited, Source
from sightline.report.summary import ReportSummary
from sightline.report.table import Table, TableColumn
from sightline.statistics.paired import mcnemar

MOST_DIAGRAMS = 24
RULES = {
    "shared": "Full's t for all",
    "own": "own t",
    "pooled": "one t for all",
    "risk": "t within Full's risk",
    "zero": "t = 0",
}


@SECTIONS.register("calibration")
class Calibration(SectionMaker):
    id = "calibration"
    title = "Calibration"
    order = 60
    lead = "Does pruning change what the model can tell apart, or only where it draws the line?"

    def fill(self, section: Section, context: Context) -> None:
        source = context.source
        if source.has_margins:
            charts = reliability_charts(source)
            title = "Reliability: share of yes labels against p(yes)"
            if len(charts) < source.frame["arm"].nunique():
                title += f", first {MOST_DIAGRAMS} arms"
            section.charts.append(ChartGroup(title, charts))
        section.add(lambda: calibration_table(context.summary))
        section.add(lambda: thresholds_table(source))
        section.add(lambda: flips_table(source))


def reliability_charts(source: Source) -> list[Markup]:
    """One small diagram per arm, as many as fit a page."""
    charts: list[Markup] = []
    known = source.frame[source.frame["margin"].notna()]
    for arm, rows in known.groupby("arm", sort=False):
        if len(charts) == MOST_DIAGRAMS:
            break
        probability = expit(rows["margin"].to_numpy(dtype=float))
        charts.append(reliability(str(arm), probability, (rows["label"] == "yes").to_numpy()))
    return charts


def calibration_table(summary: ReportSummary) -> Table:
    columns = [TableColumn("arm", "Arm"), *metric_columns("calibration")]
    caption = (
        "p(yes) = sigmoid(margin); ECE over 15 equal bins of confidence, everything at t = 0. Resampling adds noise to "
        "every bin, so an ECE interval lies above its value when probes are few."
    )
    return Table("calibration", "Calibration", caption, columns, summary.arms)


def thresholds_table(source: Source) -> Table:
    """Every arm under five thresholds, judged on images on which none of them was chosen."""
    records: list[dict[str, Any]] = []
    problems = []
    for audited in source.runs:
        try:
            records += _thresholds(audited, source.development_of(audited))
        except SightlineError as error:
            problems.append(f"{audited.name}: {error}" if audited.name else str(error))
    if not records:
        raise SightlineError("; ".join(problems))
    columns = [
        TableColumn("arm", "Arm"),
        TableColumn("rule", "Threshold"),
        TableColumn("threshold", "t", "signed"),
        *map(metric_column, ("accuracy", "hfpr", "positive_accuracy", "yes_rate")),
        TableColumn("no_to_yes", "no → yes", "count", help="Answers that the threshold turns from no to yes."),
        TableColumn("yes_to_no", "yes → no", "count", help="Answers that the threshold turns from yes to no."),
        TableColumn("dev", "Chosen on", "count"),
        TableColumn("test", "Judged on", "count"),
    ]
    apart = [one for one in source.runs if source.development_of(one) is not None]
    split = (
        "Thresholds are chosen on the development side of a split that keeps the probes of an image together (SHA-1 of "
        "the image id) and judged on the other side. "
    )
    named = ", ".join(dict.fromkeys(one.run.path.resolve().name for one in source.developments))
    given = f"Thresholds are chosen on all images of the development run {named} and judged on all images here. "
    if 0 < len(apart) < len(source.runs):
        given = f"{', '.join(one.name for one in apart)}: {given}The others: {split}"
    caption = (given if apart else split) + (
        "Full's t is the accuracy-optimal threshold of Full for all arms; own t is each arm's, one t for all that of "
        "all arms' rows together; t within Full's risk is the most accurate one whose development hFPR is at most that "
        "of Full at t = 0. Flips are against t = 0."
    )
    if problems:
        caption += " Left out: " + "; ".join(problems) + "."
    return Table("thresholds", "Operating points", caption, columns, pd.DataFrame(records), filter="rule")


def _thresholds(audited: Audited, development: Audited | None) -> list[dict[str, Any]]:
    dev_rows, test_rows = _sides(audited, development)
    if "margin" not in dev_rows or "margin" not in test_rows:
        raise SightlineError(f"{NO_MARGIN}, and there is no threshold to choose")
    for side, rows in (("development", dev_rows), ("held-out", test_rows)):
        if rows["positive"].nunique() < 2:
            raise SightlineError(f"thresholds need both labels on the {side} images; add images")
    by_arm = {str(name): rows for name, rows in dev_rows.groupby("arm_name", sort=False)}
    full = next((name for name, rows in by_arm.items() if (rows["selector"] == "full").all()), None)
    best = choose_thresholds({name: (rows["positive"], rows["margin"]) for name, rows in by_arm.items()}, full)
    records = []
    for arm, test in test_rows.groupby("arm", sort=False):
        name = str(test["arm_name"].iloc[0])
        chosen = {"zero": 0.0}
        if name in best:
            chosen |= {"own": best[name].own, "pooled": best[name].pooled}
        if full is not None:
            chosen["shared"] = best[full].own
        if name in best and full is not None:
            bound = evaluate(by_arm[full]["positive"], by_arm[full]["margin"]).hfpr
            # An arm none of whose thresholds is as safe as Full has no such row.
            with suppress(SightlineError):
                dev = by_arm[name]
                chosen["risk"] = risk_constrained(dev["positive"], dev["margin"], bound).threshold
        for key, title in RULES.items():
            if key in chosen:
                found = asdict(evaluate(test["positive"], test["margin"], chosen[key]))
                moved = flips(predict(test["margin"]), predict(test["margin"], chosen[key]))
                sizes = {"dev": len(by_arm.get(name, ())), "test": len(test)}
                records.append({"arm": arm, "rule": title, **found, **asdict(moved), **sizes})
    return records


def _sides(audited: Audited, development: Audited | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows to choose on and rows to judge on: another run and all of this one, or this run's two sides."""
    frame = audited.frame.assign(positive=audited.frame["label"] == "yes")
    if development is not None:
        return development.frame.assign(positive=development.frame["label"] == "yes"), frame
    dev = frame["image_id"].astype(str).map(lambda group: hash_side(group) == "dev")
    return frame[dev], frame[~dev]


def flips_table(source: Source) -> Table:
    """How many answers differ from Full's on the same probes, by direction and by consequence."""
    records = []
    for audited in source.runs:
        if audited.full is None:
            continue
        full = audited.frame[audited.frame["arm"] == audited.full].set_index("probe_id")
        for arm, rows in audited.frame.groupby("arm", sort=False):
            if arm == audited.full:
                continue
            rows = rows[rows["probe_id"].isin(full.index)]
            before = full.loc[rows["probe_id"]]
            records.append({"arm": arm, "probes": len(rows), **flip_counts(before, rows)})
    if not records:
        raise SightlineError("flips are counted against Full, and no run has a full arm beside another; add --arm full")
    caption = (
        "Answers at t = 0 compared with Full's on the same probe. The exact McNemar p asks whether gains and losses "
        "balance; it takes probes as independent, so read it beside the image-cluster interval."
    )
    return Table("flips", "Flips against Full, in probes", caption, flip_columns(), pd.DataFrame(records))


def flip_counts(before: pd.DataFrame, after: pd.DataFrame) -> dict[str, Any]:
    """Both frames hold the same probes in the same order."""
    changed = flips(before["predicted"].to_numpy() == "yes", after["predicted"].to_numpy() == "yes")
    test = mcnemar(before["correct"].to_numpy(dtype=bool), after["correct"].to_numpy(dtype=bool))
    return {
        "flips": changed.total,
        "share": changed.total / len(after),
        "no_to_yes": changed.no_to_yes,
        "yes_to_no": changed.yes_to_no,
        "gained": test.second_only,
        "lost": test.first_only,
        "p": test.p,
    }


def flip_columns() -> list[TableColumn]:
    return [
        TableColumn("arm", "Arm"),
        TableColumn("probes", "Probes", "count"),
        TableColumn("flips", "Flips", "count"),
        TableColumn("share", "Share", "percent"),
        TableColumn("no_to_yes", "no → yes", "count"),
        TableColumn("yes_to_no", "yes → no", "count"),
        TableColumn("gained", "wrong → right", "count"),
        TableColumn("lost", "right → wrong", "count"),
        TableColumn("p", "McNemar p", "p"),
    ]
