"""The numbers behind the tables: every metric of every arm, and every arm against Full, from paired draws."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sightline.errors import SightlineError
from sightline.report.source import Audited, Source
from sightline.report.table import format_range, format_value
from sightline.statistics.bootstrap import DRAWS, SEED
from sightline.statistics.metrics import METRICS
from sightline.statistics.table import arm_summary, paired_differences

COMPARED = (
    "accuracy",
    "positive_accuracy",
    "hfpr",
    "auroc",
    "pos_ecr",
    "anchor_ecr",
    "neg_src",
    "low_coverage",
    "zero_coverage",
)
"""Metrics whose difference from Full is reported."""


@dataclass(frozen=True)
class Summary:
    """``arms``: one line per arm (``metric``, ``metric_low``, ``metric_high``); ``differences``: per arm and metric."""

    arms: pd.DataFrame
    differences: pd.DataFrame
    """arm - reference of the same run, ``against`` Full or another named arm; empty when there is none."""
    notes: list[str]

    def difference(self, arm: str, metric: str) -> pd.Series[Any] | None:
        if self.differences.empty:
            return None
        table = self.differences
        found = table[(table["arm"] == arm) & (table["metric"] == metric) & (table["against"] == "Full")]
        return None if found.empty else found.iloc[0]


@dataclass(frozen=True)
class Verdict:
    """One arm in one sentence or two."""

    arm: str
    words: str


def summarise(source: Source, draws: int = DRAWS, seed: int = SEED, references: Sequence[str] = ()) -> Summary:
    """Every run on its own: arms are compared with the Full arm of their run, never across probe sets.

    ``references`` are further arms to compare all others with, such as a random control at the same budget.
    """
    known = [str(arm) for arm in source.frame["arm_name"].unique()]
    for reference in references:
        if reference not in known:
            raise SightlineError(f"no run has an arm '{reference}' to compare with{_guess(reference, known)}")
    arms, differences, notes = [], [], []
    for audited in source.runs:
        # Statistics see the run's own arm names ("full" reads as Full in words); the report's names come back after.
        names = dict(zip(audited.frame["arm_name"], audited.frame["arm"], strict=True))
        frame = audited.frame.assign(arm=audited.frame["arm_name"])
        table = arm_summary(frame, draws=draws, seed=seed)
        extra = audited.frame.groupby("arm_name", sort=False)["selector"].first()
        table["selector"] = table["arm"].map(extra)
        arms.append(table.assign(arm=table["arm"].map(names), run=audited.name))
        if audited.full is not None and len(audited.arms) > 1:
            wanted = [next(plain for plain, shown in names.items() if shown == audited.full)]
        else:
            wanted = []
            notes.append(_no_difference(audited))
        for reference in dict.fromkeys([*wanted, *references]):
            if reference in names and len(names) > 1:
                found = paired_differences(frame, reference, metrics=COMPARED, draws=draws, seed=seed)
                against = "Full" if reference in wanted else reference
                differences.append(found.assign(arm=found["arm"].map(names), against=against))
    return Summary(
        pd.concat(arms, ignore_index=True),
        pd.concat(differences, ignore_index=True) if differences else pd.DataFrame(),
        notes,
    )


def _guess(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; arms: {', '.join(known)}"


def _no_difference(audited: Audited) -> str:
    prefix = f"{audited.name}: " if audited.name else ""
    if audited.full is None:
        return f"{prefix}no full arm, so nothing can be compared with it; amend the run with --arm full"
    return f"{prefix}Full is the only arm; amend the run with the arms to compare, for example --arm target:0.3"


def verdicts(source: Source, summary: Summary) -> list[Verdict]:
    """One statement per arm, in the order of the run."""
    full = {audited.full for audited in source.runs}
    return [_verdict(line, summary, line["arm"] in full) for _, line in summary.arms.iterrows()]


def _verdict(line: pd.Series[Any], summary: Summary, is_full: bool) -> Verdict:
    arm = str(line["arm"])
    accuracy = f"accuracy {format_value(line['accuracy'], 'score')}"
    if is_full:
        interval = format_range(line["accuracy_low"], line["accuracy_high"], "score")
        risk = "" if math.isnan(line["hfpr"]) else f", hFPR {format_value(line['hfpr'], 'score')}"
        return Verdict(
            arm,
            f"is the reference: {accuracy}{f' ({interval})' if interval else ''}{risk} on {line['n_probes']} probes "
            f"of {line['n_images']} image{'s' if line['n_images'] != 1 else ''}.",
        )
    words = f"keeps {share(line['keep'])}; {accuracy}"
    change = summary.difference(arm, "accuracy")
    if change is not None and change["words"] != "not computed":
        words += f", {_minus(change['words'])}"
    alarms = summary.difference(arm, "hfpr")
    if alarms is not None and str(alarms["words"]).startswith(("lower", "higher")):
        words += f"; hFPR {format_value(line['hfpr'], 'score')}, {alarms['words']}"
    if math.isfinite(line["pos_ecr"]):
        words += f"; {share(line['pos_ecr'])} of the evidence survives"
        if math.isfinite(line["anchor_ecr"]) and abs(line["anchor_ecr"] - line["pos_ecr"]) > 5e-4:
            words += f" in merges, {share(line['anchor_ecr'])} in place"
        if math.isfinite(line["zero_coverage"]):
            words += f", {share(line['zero_coverage'])} of correct yes answers have none"
    return Verdict(arm, words + ".")


def share(value: float) -> str:
    """A percentage without decimals; what is not quite nothing or everything does not read as such."""
    if 0 < value < 0.005:
        return "<1%"
    return ">99%" if 0.995 < value < 1 else f"{100 * value:.0f}%"


def _minus(words: str) -> str:
    """A typographic minus before digits."""
    return words.replace(" -", " −").replace("(-", "(−")


def metric_help(name: str) -> str:
    metric = METRICS[name]
    return f"{metric.definition} (over {metric.over})"
