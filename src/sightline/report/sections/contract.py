"""What exactly was run: the contract of each arm, the digests of a run, and what a limit to some probes changes."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from sightline.core.table import Table, format_value
from sightline.errors import SightlineError
from sightline.report.columns import arm_facts, build_table, in_panels
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker
from sightline.rows.source import Source
from sightline.statistics.metrics import METRICS, metrics_shown_in, point
from sightline.statistics.summaries import arm_points, arm_rows

READ = (
    "arm", "model", "selector", "form", "arguments", "budget", "keep", "n_tokens", "k_tokens", "positions",
    "box_source", "profile", "device", "dtype", "attention", "probe_id", "image_id", "label", "correct",
)  # fmt: skip
"""Columns that the table of arms is made from."""


@SECTIONS.register("contract")
class Contract(SectionMaker):
    id = "contract"
    title = "Contract"
    order = 25
    lead = "What each arm is, exactly: no number means anything without it."

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: contract_table(context.source))
        section.add(lambda: runs_table(context.source))


def contract_table(source: Source) -> Table:
    """One row per arm: selector with all arguments, regime, budget, position policy, box source, what ran it."""
    records = []
    for audited in source.runs:
        for arm, rows in audited.frame[list(READ)].groupby("arm", sort=False):
            first = rows.iloc[0]
            records.append(
                {
                    "arm": arm,
                    "model": first["model"],
                    "selector": first["selector"],
                    "arguments": _arguments(first["arguments"]) + (f"; form: {first['form']}" if first["form"] else ""),
                    "budget": first["budget"],
                    **arm_points(rows, ("keep",)),
                    "tokens": _range(rows["n_tokens"]),
                    "kept": _range(rows["k_tokens"]),
                    "positions": first["positions"],
                    "box_source": first["box_source"],
                    "profile": first["profile"],
                    "device": ", ".join(sorted({str(d) for d in rows["device"].unique()})),
                    "dtype": first["dtype"],
                    "attention": first["attention"],
                    "probes": len(rows),
                }
            )
    frame = in_panels(pd.DataFrame(records), arm_facts(source)).assign(
        regime=lambda lines: lines["regime"].fillna("not known")
    )
    return build_table("contract", frame)


def runs_table(source: Source) -> Table:
    """One row per run: the digests and versions that make it repeatable."""
    records = []
    for audited in (*source.runs, *source.controls):
        manifest = audited.run.manifest
        versions, route = manifest.get("versions") or {}, manifest.get("served_by")
        records.append(
            {
                "run": audited.name or audited.run.path.resolve().name,
                "model": f"{manifest.get('model')} ({manifest.get('model_type')})",
                "served_by": f"{route['images']}, {route['language']}" if route else "not recorded",
                "weights": str(manifest.get("weight_digest"))[:16],
                "probe_set": str(manifest.get("probe_digest"))[:16],
                "device": f"{manifest.get('device')}, {manifest.get('dtype')}, {manifest.get('attention')} attention",
                "seed": str(manifest.get("seed")),
                "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
                "created": str(manifest.get("created")),
            }
        )
    return build_table("runs", pd.DataFrame(records))


def _arguments(text: Any) -> str:
    try:
        arguments = json.loads(text or "{}")
    except json.JSONDecodeError:
        return str(text)
    return ", ".join(f"{key}={value}" for key, value in arguments.items()) or "none"


def _range(values: pd.Series[Any]) -> str:
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"{low}–{high}"


@SECTIONS.register("limited")
class LimitedProbes(SectionMaker):
    id = "limited"
    title = "What the limit changes"
    order = 12
    lead = "This report is about some of the probes that were audited. How far is it from one about all of them?"

    def fill(self, section: Section, context: Context) -> None:
        runs = [run for run in context.source.runs if run.unlimited is not None]
        if not runs:
            return
        if any(run.rule is not None for run in runs):
            section.notes.append("answers are read at chosen thresholds here, which all probes together may not have")
            return
        section.add(lambda: limit_table(context.source))


def filter_effects(every: pd.DataFrame, kept: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """One line per arm and metric: its value over all rows, over those that are kept, and the change.

    What cannot be computed on either side is left out.
    """
    lines = []
    for arm, own in every.groupby("arm", sort=False):
        chosen = kept[kept["arm"] == arm]
        if chosen.empty:
            continue
        sides = arm_rows(own), arm_rows(chosen)
        for name in metrics:
            whole, part = (point(METRICS[name], rows) for rows in sides)
            if math.isfinite(whole) and math.isfinite(part):
                lines.append({"arm": arm, "metric": name, "all": whole, "kept": part, "change": part - whole})
    return pd.DataFrame(lines, columns=["arm", "metric", "all", "kept", "change"])


def largest_changes(every: pd.DataFrame, kept: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """One line per metric: the arm whose value changes most, up or down."""
    found = filter_effects(every, kept, metrics)
    if found.empty:
        raise SightlineError("no metric can be computed both over all rows and over those that are kept")
    most = found.assign(size=found["change"].abs()).groupby("metric", sort=False)["size"].idxmax()
    return found.loc[most].reset_index(drop=True)


def limit_table(source: Source) -> Table:
    """Per run and metric the arm that changes most."""
    names = [metric.name for metric in metrics_shown_in("main")]
    parts = []
    for run in source.runs:
        if run.unlimited is not None:
            parts.append(largest_changes(run.unlimited, run.frame, names).assign(run=run.name))
    frame = pd.concat(parts, ignore_index=True)
    frame["title"] = frame["metric"].map(lambda name: METRICS[str(name)].label)
    most = max(frame.to_dict("records"), key=lambda line: abs(line["change"]))
    sentence = (
        f"{most['title']} of {most['arm']} changes most, by {format_value(float(most['change']), 'signed')}: "
        f"{format_value(float(most['all']), 'score')} on all probes, {format_value(float(most['kept']), 'score')} here."
    )
    named = ["run"] if len(source.runs) > 1 else []
    return build_table("limited", frame, columns={"run": named}, sentence=sentence)
