"""What exactly was run: the reporting contract of each arm, and the cost of its stages as recorded."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd

from sightline.errors import SightlineError
from sightline.report.source import Audited, Source
from sightline.report.table import Column, Table

STAGES = {
    "preprocess_ms": "Preprocess",
    "vision_ms": "Vision",
    "boxes_ms": "Boxes",
    "signal_ms": "Signals",
    "select_ms": "Select",
    "materialise_ms": "Materialise",
    "language_ms": "Language",
}
HELP = {"boxes_ms": "Text detector, once per image; a dash for arms that read no detected boxes."}


def contract_table(source: Source) -> Table:
    """One row per arm: model, selector with all arguments, budget, position policy, box source, what ran it."""
    records = []
    for audited in source.runs:
        for arm, rows in audited.frame.groupby("arm", sort=False):
            first = rows.iloc[0]
            records.append(
                {
                    "arm": arm,
                    "model": first["model"],
                    "selector": first["selector"],
                    "arguments": _arguments(first["arguments"]),
                    "budget": first["budget"],
                    "keep": float(rows["keep"].mean()),
                    "tokens": _range(rows["n_tokens"]),
                    "kept": _range(rows["k_tokens"]),
                    "positions": first["positions"],
                    "box_source": first["box_source"],
                    "profile": first["profile"],
                    "device": ", ".join(sorted({str(d) for d in rows["device"]})),
                    "dtype": first["dtype"],
                    "attention": first["attention"],
                    "probes": len(rows),
                }
            )
    columns = [
        Column("arm", "Arm"),
        Column("model", "Model"),
        Column("selector", "Selector"),
        Column("arguments", "Arguments"),
        Column("budget", "Budget", help="As asked for: a kept fraction, or a count such as 192t."),
        Column("keep", "Keep", "score", help="Realised kept fraction, measured on the tensor that was run."),
        Column("tokens", "N", help="Visual tokens of the full prefix."),
        Column("kept", "K", help="Visual tokens of the pruned prefix."),
        Column("positions", "Positions"),
        Column("box_source", "Boxes", help="Where selector-visible boxes came from."),
        Column("profile", "Profile"),
        Column("device", "Device"),
        Column("dtype", "Dtype"),
        Column("attention", "Attention"),
        Column("probes", "Probes", "count"),
    ]
    caption = "Numbers are comparable only between rows that agree here, except in the part that is being compared."
    return Table("contract", "Reporting contract", caption, columns, pd.DataFrame(records))


def facts(audited: Audited) -> list[tuple[str, str]]:
    """The line under the title; the runs table has the rest."""
    manifest, probes = audited.run.manifest, audited.frame.drop_duplicates("probe_id")
    return [
        ("Run", audited.name or audited.run.path.resolve().name),
        ("model", str(manifest.get("model"))),
        ("probes", f"{len(probes)} on {probes['image_id'].nunique()} images"),
        ("device", f"{manifest.get('device')}, {manifest.get('dtype')}"),
        ("positions", str(manifest.get("positions"))),
        ("boxes", str(manifest.get("box_source"))),
        ("profile", str(manifest.get("profile"))),
        ("created", str(manifest.get("created"))[:10]),
    ]


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
                "weights": str(manifest.get("weight_digest"))[:16],
                "probe_set": str(manifest.get("probe_digest"))[:16],
                "device": f"{manifest.get('device')}, {manifest.get('dtype')}, {manifest.get('attention')} attention",
                "seed": str(manifest.get("seed")),
                "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
                "created": str(manifest.get("created")),
            }
        )
    columns = [
        Column("run", "Run"),
        Column("model", "Model"),
        Column("weights", "Weights", help="First digits of the SHA-256 over the weight files."),
        Column("probe_set", "Probe set", help="First digits of the digest of the probes' content."),
        Column("device", "Device"),
        Column("seed", "Seed"),
        Column("versions", "Versions"),
        Column("created", "Created"),
    ]
    caption = "Digests are of content, never of paths."
    return Table("runs", "Runs", caption, columns, pd.DataFrame(records))


def cost_table(source: Source) -> Table:
    """Mean milliseconds of each stage, as recorded by the run on the device it names."""
    records = []
    for audited in source.runs:
        for arm, rows in audited.frame.groupby("arm", sort=False):
            times = {stage: float(rows[stage].astype(float).mean()) for stage in STAGES}
            records.append(
                {
                    "arm": arm,
                    "keep": float(rows["keep"].mean()),
                    "sequence_full": float(rows["sequence_full"].mean()),
                    "sequence_pruned": float(rows["sequence_pruned"].mean()),
                    **times,
                    "total": sum(v for v in times.values() if v == v),
                    "device": ", ".join(sorted({str(d) for d in rows["device"]})),
                }
            )
    frame = pd.DataFrame(records)
    if frame[list(STAGES)].isna().all(axis=None):
        raise SightlineError("the run recorded no stage times")
    columns = [
        Column("arm", "Arm"),
        Column("keep", "Keep", "score"),
        Column("sequence_full", "Prompt, full", "number", help="Mean tokens of the unpruned prompt."),
        Column("sequence_pruned", "Prompt, pruned", "number", help="Mean tokens of the prompt that was run."),
        *(
            Column(key, title, "number", help=HELP.get(key, ""))
            for key, title in STAGES.items()
            if key != "boxes_ms" or frame[key].notna().any()
        ),
        Column("total", "Total", "number"),
        Column("device", "Device"),
    ]
    devices = ", ".join(sorted(set(frame["device"])))
    caption = (
        f"Mean milliseconds per probe on {devices}, as recorded while auditing: preprocessing, vision and detecting "
        "boxes are paid once per image and shared, language time is a batch divided by its rows. This is bookkeeping, "
        "not a benchmark: exclusive timing needs a fresh process per arm."
    )
    return Table("cost", "Stage times", caption, columns, frame)


def _arguments(text: Any) -> str:
    try:
        arguments = json.loads(text or "{}")
    except json.JSONDecodeError:
        return str(text)
    return ", ".join(f"{key}={value}" for key, value in arguments.items()) or "none"


def _range(values: pd.Series[Any]) -> str:
    low, high = int(values.min()), int(values.max())
    return str(low) if low == high else f"{low}–{high}"
