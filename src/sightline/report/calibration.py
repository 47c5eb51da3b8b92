"""Ranking or operating point? Thresholds chosen on one half of the images, judged on the other; flips by direction."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pandas as pd
from markupsafe import Markup
from scipy.special import expit

from sightline.errors import SightlineError
from sightline.probes.split import hash_side
from sightline.report.charts import reliability
from sightline.report.source import Audited, Source
from sightline.report.table import Column, Table
from sightline.scoring.thresholds import accuracy_optimal, evaluate, flips, risk_constrained
from sightline.statistics.paired import mcnemar

MOST_DIAGRAMS = 24


def reliability_charts(source: Source) -> list[Markup]:
    """One small diagram per arm, as many as fit a page."""
    charts: list[Markup] = []
    for arm, rows in source.frame.groupby("arm", sort=False):
        if len(charts) == MOST_DIAGRAMS:
            break
        probability = expit(rows["margin"].to_numpy(dtype=float))
        charts.append(reliability(str(arm), probability, (rows["label"] == "yes").to_numpy()))
    return charts


RULES = {"shared": "Full's t for all", "own": "own t", "risk": "t within Full's risk", "zero": "t = 0"}


def thresholds_table(source: Source) -> Table:
    """Every arm under four thresholds, all judged on the held-out images of the grouped hash split."""
    records: list[dict[str, Any]] = []
    problems = []
    for audited in source.runs:
        try:
            records += _thresholds(audited)
        except SightlineError as error:
            problems.append(f"{audited.name}: {error}" if audited.name else str(error))
    if not records:
        raise SightlineError("; ".join(problems))
    columns = [
        Column("arm", "Arm"),
        Column("rule", "Threshold"),
        Column("threshold", "t", "signed"),
        Column("accuracy", "Accuracy", "score"),
        Column("hfpr", "hFPR", "score"),
        Column("positive_accuracy", "Pos. acc.", "score"),
        Column("yes_rate", "Yes rate", "score"),
        Column("no_to_yes", "no → yes", "count", help="Answers that the threshold turns from no to yes."),
        Column("yes_to_no", "yes → no", "count", help="Answers that the threshold turns from yes to no."),
        Column("dev", "Chosen on", "count"),
        Column("test", "Judged on", "count"),
    ]
    caption = (
        "Thresholds are chosen on the development side of a split that keeps the probes of an image together (SHA-1 of "
        "the image id) and judged on the other side. Full's t is the accuracy-optimal threshold of Full for all "
        "arms; own t is each arm's; t within Full's risk is the most accurate one whose development hFPR is at most "
        "that of Full at t = 0. Flips are against t = 0."
    )
    if problems:
        caption += " Left out: " + "; ".join(problems) + "."
    return Table("thresholds", "Operating points", caption, columns, pd.DataFrame(records), filter="rule")


def _thresholds(audited: Audited) -> list[dict[str, Any]]:
    frame = audited.frame.assign(
        positive=audited.frame["label"] == "yes",
        dev=audited.frame["image_id"].astype(str).map(lambda group: hash_side(group) == "dev"),
    )
    for side, rows in (("development", frame[frame["dev"]]), ("held-out", frame[~frame["dev"]])):
        if rows["positive"].nunique() < 2:
            raise SightlineError(f"thresholds need both labels on the {side} half of the images; add images")
    full = None if audited.full is None else frame[(frame["arm"] == audited.full) & frame["dev"]]
    records = []
    for arm, rows in frame.groupby("arm", sort=False):
        dev, test = rows[rows["dev"]], rows[~rows["dev"]]
        chosen = {"zero": 0.0, "own": accuracy_optimal(dev["positive"], dev["margin"]).threshold}
        if full is not None:
            chosen["shared"] = accuracy_optimal(full["positive"], full["margin"]).threshold
            bound = evaluate(full["positive"], full["margin"]).hfpr
            # An arm none of whose thresholds is as safe as Full has no such row.
            with suppress(SightlineError):
                chosen["risk"] = risk_constrained(dev["positive"], dev["margin"], bound).threshold
        for key, title in RULES.items():
            if key in chosen:
                point = asdict(evaluate(test["positive"], test["margin"], chosen[key]))
                moved = flips(test["margin"] >= 0, test["margin"] >= chosen[key])
                sizes = {"dev": len(dev), "test": len(test)}
                records.append({"arm": arm, "rule": title, **point, **asdict(moved), **sizes})
    return records


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
    return Table("flips", "Flips against Full", caption, flip_columns(), pd.DataFrame(records))


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


def flip_columns() -> list[Column]:
    return [
        Column("arm", "Arm"),
        Column("probes", "Probes", "count"),
        Column("flips", "Flips", "count"),
        Column("share", "Share", "percent"),
        Column("no_to_yes", "no → yes", "count"),
        Column("yes_to_no", "yes → no", "count"),
        Column("gained", "wrong → right", "count"),
        Column("lost", "right → wrong", "count"),
        Column("p", "McNemar p", "p"),
    ]
