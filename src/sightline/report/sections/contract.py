"""What exactly was run: the reporting contract of each arm, and the digests that make a run repeatable."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pandas as pd

from sightline.core.table import Table
from sightline.report.columns import arm_facts, in_panels, table_column, table_columns
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker
from sightline.rows.source import Source
from sightline.statistics.summaries import arm_points

READ = (
    "arm", "model", "selector", "arguments", "budget", "keep", "n_tokens", "k_tokens", "positions", "box_source",
    "profile", "device", "dtype", "attention", "probe_id", "image_id", "label", "correct",
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
                    "arguments": _arguments(first["arguments"]),
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
    columns = table_columns(
        "arm_name selector regime arguments budget",
        table_column("keep", help="Realised kept fraction, measured on the tensor that was run."),
        "tokens kept positions box_source profile device dtype attention probes",
    )
    caption = "Numbers are comparable only between rows that agree here, except in the part that is being compared."
    frame = in_panels(pd.DataFrame(records), arm_facts(source)).assign(
        regime=lambda lines: lines["regime"].fillna("not known")
    )
    return Table("contract", "Reporting contract", caption, columns, frame, unprinted=("model",), panel="panel")


def runs_table(source: Source) -> Table:
    """One row per run: the digests and versions that make it repeatable."""
    records = []
    for audited in (*source.runs, *source.controls):
        manifest = audited.run.manifest
        versions = manifest.get("versions") or {}
        records.append(
            {
                "run": audited.name or audited.run.path.resolve().name,
                "model": f"{manifest.get('model')} ({manifest.get('model_type')})",
                "served_by": _served_by(manifest.get("served_by")),
                "weights": str(manifest.get("weight_digest"))[:16],
                "probe_set": str(manifest.get("probe_digest"))[:16],
                "device": f"{manifest.get('device')}, {manifest.get('dtype')}, {manifest.get('attention')} attention",
                "seed": str(manifest.get("seed")),
                "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
                "created": str(manifest.get("created")),
            }
        )
    columns = table_columns("run model served_by weights probe_set device seed versions created")
    caption = "Digests are of content, never of paths."
    return Table("runs", "Runs", caption, columns, pd.DataFrame(records))


def _served_by(route: Mapping[str, str] | None) -> str:
    return f"{route['images']}, {route['language']}" if route else "not recorded"


def _arguments(text: Any) -> str:
    try:
        arguments = json.loads(text or "{}")
    except json.JSONDecodeError:
        return str(text)
    return ", ".join(f"{key}={value}" for key, value in arguments.items()) or "none"


def _range(values: pd.Series[Any]) -> str:
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"{low}–{high}"
