"""Each arm against its reference on the same probes, and arms that differ in their seed alone."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from sightline.analysis.comparison import Record, by_model, table_of
from sightline.core.table import Table, TableColumn, format_range
from sightline.errors import SightlineError
from sightline.report.columns import (
    arm_facts,
    build_table,
    collect,
    has_selectors,
    headings,
    in_panels,
    shown_metrics,
    signed,
    top,
    typographic,
)
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker
from sightline.report.summary import ReportSummary
from sightline.rows.source import Audited, Source
from sightline.statistics.arm_rows import plain_rows
from sightline.statistics.bootstrap import DRAWS
from sightline.statistics.metrics import METRICS, metrics_shown_in
from sightline.statistics.paired import describe_difference, seed_summary, two_stage_differences
from sightline.statistics.summaries import arm_points, arm_rows, paired_differences

DELTAS = ("accuracy", "hfpr", "pn_average")


@SECTIONS.register("differences")
class Differences(SectionMaker):
    id = "differences"
    title = "Differences"
    order = 30
    lead = "Each arm against its reference on the same probes."

    def fill(self, section: Section, context: Context) -> None:
        summary = context.summary
        section.add(lambda: differences_table(summary))
        section.notes += [note for note in summary.notes if note not in section.notes]
        section.add(lambda: seeds_table(summary, context.source))
        section.add(lambda: seed_differences_table(context.source, context.draws, context.seed))
        section.add(lambda: shuffled_table(context.source, context.draws))
        section.add(lambda: sweeps_table(summary, context.source))


def differences_table(summary: ReportSummary) -> Table:
    """arm - reference on the same probes, with the sentence that the interval allows."""
    if summary.differences.empty:
        raise SightlineError(summary.notes[0] if summary.notes else "no arm can be compared with Full")
    frame = summary.differences.copy()
    frame["label"] = frame["metric"].map(headings(map(METRICS.get, frame["metric"].unique()), summary.arms))
    frame = frame.rename(columns={"low": "diff_low", "high": "diff_high"})
    frame["words"] = frame["words"].where(frame["reason"].isin(["", None]) | frame["diff_low"].notna(), frame["reason"])
    frame["words"] = typographic(frame["words"])
    frame = in_panels(frame, summary.facts)
    return build_table("paired_differences", frame, answers_at=summary.answers_at)


CONTROL = "shuffled"
OF_SHUFFLED = ("accuracy", "hfpr", "keep", "pn_average", "anchor_pn_average")
PAIRED_WITH_SHUFFLED = ("accuracy", "hfpr", "pn_average", "anchor_pn_average")


def shuffled_frame(frame: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
    """Every pruning arm beside the shuffled control of its budget.

    Metrics of the arm, those of the control (``control_...``), and ``delta_...``: control minus arm, paired by probe,
    with image-cluster intervals. Other controls and oracles have no scores to shuffle and are left out.
    """
    records: list[Record] = []
    for model, rows in by_model(plain_rows(frame)):
        rows = rows.assign(arm=rows["plain_arm"])
        arms = {str(arm): part for arm, part in rows.groupby("plain_arm", sort=False)}
        for name in (arm for arm, part in arms.items() if part["selector"].iloc[0] == CONTROL):
            own = {metric: arm_points(arms[name], [metric])[metric] for metric in OF_SHUFFLED}
            for arm, part in arms.items():
                if not _is_shuffled_by(part, arms[name]):
                    continue
                record: Record = {"model": model, "budget": part["budget"].iloc[0], "arm": arm, "control": name}
                record |= {"n": len(part), **arm_points(part, OF_SHUFFLED)}
                record |= {f"control_{metric}": value for metric, value in own.items()}
                both = pd.concat([part, arms[name]], ignore_index=True)
                for line in paired_differences(both, arm, metrics=PAIRED_WITH_SHUFFLED, draws=draws).to_dict("records"):
                    delta = f"delta_{line['metric']}"
                    record |= {delta: line["diff"], f"{delta}_low": line["low"], f"{delta}_high": line["high"]}
                records.append(record)
    return table_of(records, f"no budget has a method and the arm {CONTROL}; add it, for example {CONTROL}:0.3")


def _is_shuffled_by(part: pd.DataFrame, control: pd.DataFrame) -> bool:
    """A method at the control's budget."""
    return bool(part.iloc[0]["role"] == "method" and part.iloc[0]["budget"] == control.iloc[0]["budget"])


def shuffled_table(source: Source, draws: int) -> Table:
    """Every method beside the shuffled control of its budget."""
    frame = collect(
        source, has_selectors(CONTROL), lambda run: shuffled_frame(run.rows, draws=draws), arms=("arm", "control")
    )
    if frame["delta_pn_average"].isna().all():
        sentence = "Without regions on positives and negatives there is no P/N average to compare."
    else:
        line = top(frame, frame["delta_pn_average"].abs())
        sentence = (
            f"Shuffling the scores changes coverage most under {line['arm']}: P/N average "
            f"{signed(line, 'delta_pn_average')}, accuracy {signed(line, 'delta_accuracy')}."
        )
    deltas = [
        *(TableColumn(f"control_{name}", f"{METRICS[name].label}, shuffled", "score") for name in DELTAS),
        *(TableColumn(f"delta_{name}", f"Δ {METRICS[name].label}", "signed", interval=True) for name in DELTAS),
    ]
    return build_table("shuffled", frame, columns={"deltas": deltas}, sentence=sentence)


RANGED = ("accuracy", "hfpr", "auroc", "pn_average")


@dataclass(frozen=True)
class OneFactorSweep:
    """Arms of one selector and budget that differ in one argument alone."""

    family: str
    """Selector and budget."""
    factor: str
    """The argument."""
    arms: Mapping[str, str]
    """Its value -> the arm, ascending where values are numbers."""
    frozen: str | None
    """The value of the arm that names no argument: what everybody gets who does not choose."""


def sweep_range(summary: pd.DataFrame, arms: Mapping[str, str] | Iterable[str], *, frozen: str | None = None) -> Record:
    """Smallest and largest accuracy, hFPR, AUROC and P/N average over the settings of one factor.

    ``summary`` is ``arm_summary``; ``arms`` maps a setting to its arm, or lists arms that are their own settings;
    ``frozen`` names the setting in use. Each metric has its value there (NaN where none is named), and its range in
    ``_low`` and ``_high``. A range describes these settings: it is no interval.
    """
    named = dict(arms) if isinstance(arms, Mapping) else {arm: arm for arm in arms}
    table = summary.set_index("arm")
    absent = [arm for arm in named.values() if arm not in table.index]
    if absent or not named:
        raise SightlineError(f"no arm '{absent[0]}' to sweep over" if absent else "a sweep needs at least one arm")
    if frozen is not None and frozen not in named:
        raise SightlineError(f"the frozen setting '{frozen}' is not one of {', '.join(named)}")
    record: Record = {"settings": ", ".join(named), "n_settings": len(named), "frozen": frozen or ""}
    for metric in RANGED:
        values = table.loc[list(named.values()), metric].astype(float)
        record[metric] = float(values[named[frozen]]) if frozen is not None else math.nan
        record |= {f"{metric}_low": float(values.min()), f"{metric}_high": float(values.max())}
    return record


def one_factor_sweeps(frame: pd.DataFrame) -> list[OneFactorSweep]:
    """Every argument of which some selector was run with several values, all others being equal.

    A seed is no setting: what seeds do is told by the table of seeds.
    """
    arms = frame.drop_duplicates("plain_arm")
    groups: dict[tuple[str, str, str, str], dict[str, str]] = {}
    plain: set[str] = set()
    for arm, shown, selector, budget, text in zip(
        *(arms[name].astype(str) for name in ("plain_arm", "arm", "selector", "budget", "arguments")), strict=True
    ):
        arguments = json.loads(text or "{}")
        if arm == f"{selector}:{budget}":
            plain.add(shown)
        for factor, value in arguments.items():
            others = {name: other for name, other in arguments.items() if name != factor}
            key = (selector, budget, factor, json.dumps(others, sort_keys=True))
            if factor != "seed":
                groups.setdefault(key, {})[str(value)] = shown
    sweeps = []
    for (selector, budget, factor, _), settings in groups.items():
        if len(settings) > 1:
            ordered = dict(sorted(settings.items(), key=lambda item: _ascending(item[0])))
            frozen = next((setting for setting, arm in ordered.items() if arm in plain), None)
            sweeps.append(OneFactorSweep(f"{selector}:{budget}", factor, ordered, frozen))
    return sweeps


def _ascending(setting: str) -> tuple[bool, float, str]:
    """Numbers by size, then words by name."""
    try:
        return False, float(setting), ""
    except ValueError:
        return True, 0.0, setting


def sweeps_table(summary: ReportSummary, source: Source) -> Table | None:
    """Arms that differ in one argument alone: how far the metrics move over its values."""
    records = []
    for audited in source.runs:
        for sweep in one_factor_sweeps(audited.frame):
            family = f"{audited.name} · {sweep.family}" if audited.name else sweep.family
            ranges = sweep_range(summary.arms, sweep.arms, frozen=sweep.frozen)
            records.append({"family": family, "factor": sweep.factor, **ranges})
    if not records:
        return None
    frame = pd.DataFrame(records)
    for name in RANGED:
        ends = zip(frame[f"{name}_low"], frame[f"{name}_high"], strict=True)
        frame[f"{name}_range"] = [format_range(low, high, "score") for low, high in ends]
    spans = [TableColumn(f"{name}_range", f"{METRICS[name].label}, range") for name in RANGED]
    numbers = [f"{name}{end}" for name in RANGED for end in ("", "_low", "_high")]
    return build_table("sweeps", frame, columns={"ranges": spans}, unprinted=numbers)


def seeds_table(summary: ReportSummary, source: Source) -> Table | None:
    """Arms that differ in nothing but their seed, described together."""
    by_arm = summary.arms.set_index("arm")
    metrics = shown_metrics("seeds", summary.arms)
    records = []
    for family in seed_families(source):
        record: dict[str, Any] = {"family": family.name, "seeds": len(family.arms)}
        for metric in metrics:
            found = seed_summary(by_arm.loc[family.arms, metric.name].astype(float))
            record |= {metric.name: found.mean, f"{metric.name}_sd": found.sd}
            record |= {f"{metric.name}_low": found.minimum, f"{metric.name}_high": found.maximum}
        records.append(record)
    if not records:
        return None
    columns: list[TableColumn] = []
    for metric in metrics:
        columns.append(TableColumn(metric.name, metric.label, "score", interval=True))
        columns.append(TableColumn(f"{metric.name}_sd", "SD", "score"))
    return build_table("seeds", pd.DataFrame(records), columns={"metrics": columns})


def seed_differences_table(source: Source, draws: int, seed: int) -> Table | None:
    """Every other arm of the same budget minus the mean over the seeds of a random one."""
    records: list[dict[str, Any]] = []
    metrics = metrics_shown_in("seeds")
    for family in seed_families(source):
        rows = {str(arm): part for arm, part in family.audited.frame.groupby("arm", sort=False)}
        seeded = [arm_rows(rows[arm]) for arm in family.arms]
        peers = {
            arm: arm_rows(part)
            for arm, part in rows.items()
            if arm not in family.arms and part["budget"].iloc[0] == family.budget
        }
        for (arm, name), found in two_stage_differences(peers, seeded, metrics, draws=draws, seed=seed).items():
            if found.reason:
                continue  # An arm that has no value of one metric is compared by the others.
            line = {"arm": arm, "against": family.name, "label": METRICS[name].label, "diff": found.value}
            words = describe_difference(found.value, found.low, found.high, f"{family.name} over seeds")
            records.append(
                {**line, "seeds": len(seeded), "diff_low": found.low, "diff_high": found.high, "words": words}
            )
    if not records:
        return None
    frame = pd.DataFrame(records)
    frame["words"] = typographic(frame["words"])
    frame = in_panels(frame, arm_facts(source))
    return build_table("seed_differences", frame, draws=f"{draws:,}")


@dataclass(frozen=True)
class SeedFamily:
    """Arms of one run that differ in their seed alone."""

    audited: Audited
    name: str
    """Selector and budget."""
    budget: str
    arms: list[str]


def seed_families(source: Source) -> list[SeedFamily]:
    """Those with at least two seeds."""
    families = []
    for audited in source.runs:
        groups: dict[tuple[str, str, str], list[str]] = {}
        for arm, row in audited.frame.drop_duplicates("arm").set_index("arm").iterrows():
            arguments = json.loads(row["arguments"] or "{}")
            if arguments.pop("seed", None) is not None:
                key = (str(row["selector"]), str(row["budget"]), json.dumps(arguments, sort_keys=True))
                groups.setdefault(key, []).append(str(arm))
        families += [
            SeedFamily(audited, f"{selector}:{budget}", budget, arms)
            for (selector, budget, _), arms in groups.items()
            if len(arms) > 1
        ]
    return families
