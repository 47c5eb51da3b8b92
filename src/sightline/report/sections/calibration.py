"""Ranking or operating point? Thresholds chosen on some images, judged on others; flips by direction."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Any

import pandas as pd
from markupsafe import Markup
from scipy.special import expit

from sightline.core.table import Table
from sightline.errors import SightlineError
from sightline.report.charts import reliability
from sightline.report.columns import build_table, metric_columns
from sightline.report.sections.base import SECTIONS, ChartGroup, Context, Section, SectionMaker
from sightline.report.summary import ReportSummary
from sightline.rows.source import Audited, Source
from sightline.rows.thresholds import HASH_SPLIT, NO_MARGIN, development_of, on_development_side
from sightline.statistics.arm_rows import looked_up
from sightline.statistics.paired import mcnemar
from sightline.statistics.thresholds import NAMED, evaluate, flips, given, predict

MOST_DIAGRAMS = 24
NOTHING_TO_CALIBRATE = (
    "answers here are not yes or no: there is no margin, hence no threshold and no probability of yes to calibrate"
)


@SECTIONS.register("calibration")
class Calibration(SectionMaker):
    id = "calibration"
    title = "Calibration"
    order = 60
    lead = "Does pruning change what the model can tell apart, or only where it draws the line?"

    def fill(self, section: Section, context: Context) -> None:
        source = context.source
        if not source.yes_or_no:
            section.notes.append(NOTHING_TO_CALIBRATE)
            section.add(lambda: flips_table(source))
            return
        if source.has_margins:
            charts = reliability_charts(source)
            title = "Reliability: share of yes labels against p(yes)"
            if len(charts) < source.frame.loc[source.frame["margin"].notna(), "arm"].nunique():
                title += f", first {MOST_DIAGRAMS} arms"
            section.charts.append(ChartGroup(title, charts))
        section.add(lambda: calibration_table(source, context.summary))
        section.add(lambda: thresholds_in_force_table(source))
        section.add(lambda: thresholds_table(source))
        section.add(lambda: flips_table(source))


def reliability_charts(source: Source) -> list[Markup]:
    """One small diagram per arm, as many as fit a page."""
    charts: list[Markup] = []
    known = source.frame[["arm", "margin", "label"]].dropna(subset="margin")
    for arm, rows in known.groupby("arm", sort=False):
        if len(charts) == MOST_DIAGRAMS:
            break
        probability = expit(rows["margin"].to_numpy(dtype=float))
        charts.append(reliability(str(arm), probability, (rows["label"] == "yes").to_numpy()))
    return charts


def calibration_table(source: Source, summary: ReportSummary) -> Table:
    asked = [audited.name for audited in source.runs if not audited.in_words]
    arms = summary.arms[summary.arms["run"].isin(asked)].reset_index(drop=True)
    columns = {"metrics": metric_columns("calibration")}
    return build_table("calibration", arms, columns=columns, answers_at=summary.answers_at)


def thresholds_in_force_table(source: Source) -> Table | None:
    """The thresholds at which all tables of the page read answers; None where that is t = 0."""
    parts = []
    for audited in source.runs:
        if audited.rule is not None and audited.thresholds is not None:
            names = audited.shown_arms
            chosen = audited.thresholds[audited.thresholds["arm"].isin(list(names))]
            parts.append(chosen.assign(arm=chosen["arm"].map(names), rule=audited.rule.title))
    if not parts:
        return None
    frame = pd.concat(parts, ignore_index=True)
    chosen_on = ["dev_probes dev_accuracy dev_hfpr"] if frame["dev_probes"].notna().any() else []
    return build_table("thresholds_in_force", frame, columns={"chosen": chosen_on})


def thresholds_table(source: Source) -> Table:
    """Every arm under every rule, judged on images on which none of them was chosen."""
    records: list[dict[str, Any]] = []
    problems = []
    for audited in source.runs:
        if audited.in_words:
            continue
        try:
            records += _thresholds(audited, source.development_rows(audited))
        except SightlineError as error:
            problems.append(audited.said(error))
    if not records:
        raise SightlineError("; ".join(problems))
    risk = "No threshold within a risk: how much risk is yours to say, for example --threshold 'hfpr<=0.05'."
    if any(audited.rule is not None and audited.rule.bounds_risk for audited in source.runs):
        risk = "t with hFPR within the bound is each arm's most accurate one that keeps it on development probes."
    left_out = f" Left out: {'; '.join(problems)}." if problems else ""
    return build_table("thresholds", pd.DataFrame(records), left_out=left_out, whence=_whence(source), risk=risk)


def _whence(source: Source) -> str:
    """On which images thresholds are chosen and judged, run by run where runs differ in it."""
    apart = [one for one in source.runs if source.developments_of(one)]
    split = (
        f"Thresholds are chosen on {HASH_SPLIT}, which keeps the probes of an image together, and judged on the other. "
    )
    named = ", ".join(dict.fromkeys(one.run.path.resolve().name for one in source.developments))
    given = f"Thresholds are chosen on all images of the development run {named} and judged on all images here. "
    if 0 < len(apart) < len(source.runs):
        return f"{', '.join(one.name for one in apart)}: {given}The others: {split}"
    return given if apart else split


def _thresholds(audited: Audited, development: pd.DataFrame | None) -> list[dict[str, Any]]:
    dev_rows, test_rows = _sides(audited, development)
    if "margin" not in dev_rows or "margin" not in test_rows:
        raise SightlineError(f"{NO_MARGIN}, and there is no threshold to choose")
    for side, rows in (("development", dev_rows), ("held-out", test_rows)):
        if rows["label"].nunique() < 2:
            raise SightlineError(f"thresholds need both labels on the {side} images; add images")
    seen = development_of(dev_rows)
    # Those that choose for themselves, the one asked for if it is another, and t = 0.
    rules = dict.fromkeys([*NAMED.values(), *([] if audited.rule is None else [audited.rule]), given(0.0)])
    records = []
    for arm, test in test_rows.groupby("arm", sort=False):
        name = str(test["plain_arm"].iloc[0])
        positive, margin = test["label"] == "yes", test["margin"]
        sizes = {"dev": len(seen.arms[name][0]) if name in seen.arms else 0, "test": len(test)}
        for rule in rules:
            # An arm without development rows, or without a threshold as safe as the bound, has no such line.
            with suppress(SightlineError):
                threshold = rule.threshold(name, seen)
                found = asdict(evaluate(positive, margin, threshold))
                moved = asdict(flips(predict(margin), predict(margin, threshold)))
                records.append({"arm": arm, "rule": rule.title, **found, **moved, **sizes})
    return records


def _sides(audited: Audited, development: pd.DataFrame | None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows to choose on and rows to judge on: others and all of this run's, or this run's two sides."""
    if development is not None:
        return development, audited.frame
    told = ("arm", "plain_arm", "selector", "view", "intervention", "label", "margin", "image_id")
    frame = audited.frame[[name for name in told if name in audited.frame]]
    aside = on_development_side(frame)
    return frame[aside], frame[~aside]


def flips_table(source: Source) -> Table | None:
    """How many answers differ from Full's on the same probes, by direction and by consequence.

    Answers in words have a section of their own for that; None where there are no others.
    """
    records = []
    others = [audited for audited in source.runs if not audited.in_words]
    if not others:
        return None
    for audited in others:
        if audited.full is None:
            continue
        answers = audited.frame[["arm", "probe_id", "predicted", "correct"]]
        full = answers[answers["arm"] == audited.full].set_index("probe_id")
        for arm, rows in answers.groupby("arm", sort=False):
            if arm == audited.full:
                continue
            rows = rows[rows["probe_id"].isin(full.index)]
            before = pd.DataFrame({name: looked_up(rows["probe_id"], full[name]) for name in ("predicted", "correct")})
            records.append({"arm": arm, "probes": len(rows), **flip_counts(before, rows)})
    if not records:
        raise SightlineError("flips are counted against Full, and no run has a full arm beside another; add --arm full")
    return flips_table_of("flips", records, source)


def flip_counts(before: pd.DataFrame, after: pd.DataFrame) -> dict[str, Any]:
    """Both frames hold the same probes in the same order. Directions are those of answers that are yes or no."""
    total = int((before["predicted"].to_numpy() != after["predicted"].to_numpy()).sum())
    changed = flips(before["predicted"].to_numpy() == "yes", after["predicted"].to_numpy() == "yes")
    test = mcnemar(before["correct"].to_numpy(dtype=bool), after["correct"].to_numpy(dtype=bool))
    return {
        "flips": total,
        "share": total / len(after),
        "no_to_yes": changed.no_to_yes,
        "yes_to_no": changed.yes_to_no,
        "gained": test.second_only,
        "lost": test.first_only,
        "p": test.p,
    }


def flips_table_of(name: str, records: list[dict[str, Any]], source: Source) -> Table:
    """One line per arm with its ``flip_counts``; directions where answers are yes or no."""
    directions = ["no_to_yes yes_to_no"] if source.yes_or_no else []
    at = f" {source.at}" if source.yes_or_no else ""
    return build_table(name, pd.DataFrame(records), columns={"directions": directions}, at=at)
