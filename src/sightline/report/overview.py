"""The top of the page: one sentence per arm, and the main table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sightline.report.arm_words import share
from sightline.report.metric_columns import answers_given, heading, metric_columns, metrics_told
from sightline.report.panels import in_panels, oracle_words
from sightline.report.source import Source
from sightline.report.summary import AT_CHANCE, ReportSummary
from sightline.report.table import Table, TableColumn, format_range, format_value
from sightline.statistics.intervals import FEW_DIFFER
from sightline.statistics.metrics import METRICS


@dataclass(frozen=True)
class Verdict:
    """One arm in one sentence or two."""

    arm: str
    words: str
    panel: str = ""
    """The heading under which it stands."""


def main_table(summary: ReportSummary, *, by_run: bool = True) -> Table:
    """Answer behaviour and provenance of every arm, with 95% image-cluster intervals.

    ``by_run`` gives the runs of a report panels of their own.
    """
    columns = [TableColumn("arm_name", "Arm"), *metric_columns("main", summary.arms)]
    coverage = heading(METRICS["pos_ecr"], summary.arms)
    caption = (
        f"Small print is the 95% interval when images are resampled. {coverage} counts the cells of all merged "
        "sources, AnchorECR only those kept in place"
    )
    if "yes or no" in answers_given(summary.arms):
        caption += "; NegSRC is coverage of the confusable word on negatives, no evidence of absence"
    caption += f". Rows are points on a frontier, not a ranking.{summary.answers_at}{few_differ_words(summary.arms)}"
    frame = in_panels(summary.arms, summary.facts, by_run=by_run)
    return Table("main", "Main results", caption, columns, frame, unprinted=("regime",), panel="panel")


def few_differ_words(arms: pd.DataFrame) -> str:
    """A sentence for a caption: which of the printed intervals allow for an unseen image; "" where none does."""
    marked: dict[str, list[str]] = {}
    for arm, names in zip(arms["arm"], arms["few_differ"].str.split(", "), strict=True):
        for metric in metrics_told("main", arms):
            if metric.name in names:
                marked.setdefault(metric.label, []).append(str(arm))
    found = "; ".join(
        label if len(own) == len(arms) > 1 else f"{label} of {', '.join(own)}" for label, own in marked.items()
    )
    if not found:
        return ""
    return (
        f" Where fewer than {FEW_DIFFER} images differ, resampling cannot bound what others would do, and the interval "
        f"allows for an image that was not seen: {found}."
    )


def verdicts(source: Source, summary: ReportSummary) -> list[Verdict]:
    """One statement per arm, by panels, otherwise in the order of the run."""
    full = {audited.full for audited in source.runs}
    # Where the model guesses, "identical to Full" says nothing.
    guesses = f" {AT_CHANCE.capitalize()}."
    found = []
    for _, line in in_panels(summary.arms, summary.facts).iterrows():
        words = _words(line, summary, line["arm"] in full)
        if line["regime"] == "oracle":
            words = f"{oracle_words(line['box_source'])} {words}"
        if line["run"] in summary.at_chance:
            words += guesses
        found.append(Verdict(str(line["arm_name"]), words, str(line["panel"])))
    return found


def _words(line: pd.Series[Any], summary: ReportSummary, is_full: bool) -> str:
    arm = str(line["arm"])
    in_words = math.isfinite(line.get("score", math.nan))
    measure = "score" if in_words else "accuracy"
    result = f"{measure} {format_value(line[measure], 'score')}"
    if is_full:
        interval = format_range(line[f"{measure}_low"], line[f"{measure}_high"], "score")
        risk = "" if math.isnan(line["hfpr"]) else f", hFPR {format_value(line['hfpr'], 'score')}"
        return (
            f"is the reference: {result}{f' ({interval})' if interval else ''}{risk} on {line['n_probes']} probes "
            f"of {line['n_images']} image{'s' if line['n_images'] != 1 else ''}."
        )
    words = f"keeps {share(line['keep'])}; {result}"
    change = summary.difference(arm, measure)
    if change is not None and change["words"] != "not computed":
        words += f", {_minus(change['words'])}"
    alarms = summary.difference(arm, "hfpr")
    if alarms is not None and str(alarms["words"]).startswith(("lower", "higher")):
        words += f"; hFPR {format_value(line['hfpr'], 'score')}, {alarms['words']}"
    if math.isfinite(line["pos_ecr"]):
        words += f"; {share(line['pos_ecr'])} of the evidence survives"
        if math.isfinite(line["anchor_ecr"]) and abs(line["anchor_ecr"] - line["pos_ecr"]) > 5e-4:
            words += f" in merges, {share(line['anchor_ecr'])} in place"
        if math.isfinite(line["unsupported"]):
            answers = "answers" if in_words else "yes answers"
            words += f", {share(line['unsupported'])} of correct {answers} are unsupported"
    return words + "."


def _minus(words: str) -> str:
    """A typographic minus before digits."""
    return words.replace(" -", " −").replace("(-", "(−")
