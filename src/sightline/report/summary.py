"""The numbers behind the tables: every metric of every arm, and every arm against Full, from paired draws."""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from sightline.errors import SightlineError
from sightline.report.metric_columns import about_given_answers
from sightline.report.panels import arm_facts
from sightline.report.source import Audited, Source
from sightline.statistics.arm_analysis import ArmAnalysis, every_metric
from sightline.statistics.bootstrap import DRAWS, SEED, ranked_words
from sightline.statistics.metrics import METRICS, metrics_shown_in
from sightline.statistics.readable_answers import nothing_in
from sightline.statistics.summaries import difference_table, summary_table


@dataclass(frozen=True)
class ReportSummary:
    """``arms``: one line per arm (``metric``, ``metric_low``, ``metric_high``); ``differences``: per arm and metric."""

    arms: pd.DataFrame
    """With the columns of ``arm_facts``: ``arm_name``, ``run``, ``regime``, ``box_source``."""
    differences: pd.DataFrame
    """arm - reference of the same run, ``against`` Full or another named arm; empty when there is none."""
    notes: list[str]
    says_nothing: dict[str, str] = field(default_factory=dict)
    """Name of a run from whose answers nothing can be read -> a sentence that says why, with the numbers."""
    answers_at: str = ""
    """The threshold of the answers as a sentence behind a caption; "" where they are as recorded."""

    def ranked_notes(self, draws: int) -> list[str]:
        """A line where an arm is too large for AUROC to be ranked in every draw."""
        words = ranked_words(int(self.arms["n_probes"].max()), draws) if self.arms["auroc"].notna().any() else ""
        return [words] if words else []

    @property
    def facts(self) -> pd.DataFrame:
        """``arm_facts`` of the report's arms."""
        return self.arms.set_index("arm")[["arm_name", "run", "regime", "box_source"]]

    def difference(self, arm: str, metric: str) -> pd.Series[Any] | None:
        if self.differences.empty:
            return None
        table = self.differences
        found = table[(table["arm"] == arm) & (table["metric"] == metric) & (table["against"] == "Full")]
        return None if found.empty else found.iloc[0]


def summarise(source: Source, draws: int = DRAWS, seed: int = SEED, references: Sequence[str] = ()) -> ReportSummary:
    """Every run on its own: arms are compared with the Full arm of their run, never across probe sets.

    ``references`` are further arms to compare all others with, such as a random control at the same budget.
    """
    known = [str(arm) for arm in source.frame["arm_name"].unique()]
    for reference in references:
        if reference not in known:
            raise SightlineError(f"no run has an arm '{reference}' to compare with{_guess(reference, known)}")
    facts = arm_facts(source)
    arms, differences, notes, says_nothing = [], [], [], {}
    for audited in source.runs:
        # Statistics see the run's own arm names ("full" reads as Full in words); the report's names come back after.
        names = audited.shown_arms
        frame = audited.frame.assign(arm=audited.frame["arm_name"])
        told = [metric.name for metric in every_metric(frame)]
        asked = dict.fromkeys([*told, *compared()])
        analysis = ArmAnalysis.of(frame, list(asked), None, draws, seed)
        table = summary_table(analysis, metrics=told)
        selectors = audited.frame[["arm_name", "selector"]].drop_duplicates("arm_name").astype(str)
        table["selector"] = table["arm"].map(selectors.set_index("arm_name")["selector"])
        sums = [analysis.arms[arm].sums for arm in table["arm"]]
        table["n_unsupported"] = [
            0 if each is None or math.isnan(value) else each.probes(METRICS["unsupported"])
            for each, value in zip(sums, table["unsupported"], strict=True)
        ]
        table["arm"] = table["arm"].map(names)
        arms.append(table.join(facts, on="arm"))
        if audited.full is not None and len(audited.arms) > 1:
            wanted = [next(plain for plain, shown in names.items() if shown == audited.full)]
        else:
            wanted = []
            notes.append(_no_difference(audited))
        nothing = nothing_in(table)
        if nothing:
            says_nothing[audited.name] = sentence(nothing, audited.name)
        for reference in dict.fromkeys([*wanted, *references]):
            if reference in names and len(names) > 1:
                found = difference_table(analysis, reference, metrics=compared())
                found = about_given_answers(found)
                against = "Full" if reference in wanted else reference
                differences.append(found.assign(arm=found["arm"].map(names), against=against))
    return ReportSummary(
        pd.concat(arms, ignore_index=True),
        pd.concat(differences, ignore_index=True) if differences else pd.DataFrame(),
        notes,
        says_nothing,
        source.answers_at,
    )


def sentence(clause: str, run: str = "") -> str:
    """A clause as a sentence behind the name of its run, where runs have names."""
    return f"{f'{run}: ' if run else ''}{clause[0].upper()}{clause[1:]}."


def compared() -> list[str]:
    """Metrics whose difference from a reference is reported."""
    return [metric.name for metric in metrics_shown_in("differences")]


def _guess(name: str, known: list[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{close[0]}'?" if close else f"; arms: {', '.join(known)}"


def _no_difference(audited: Audited) -> str:
    prefix = f"{audited.name}: " if audited.name else ""
    if audited.full is None:
        return f"{prefix}no full arm, so nothing can be compared with it; amend the run with --arm full"
    return f"{prefix}Full is the only arm; amend the run with the arms to compare, for example --arm target:0.3"
