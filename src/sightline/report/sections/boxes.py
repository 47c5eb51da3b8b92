"""What selectors that look at boxes do when nobody hands them the annotation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pandas as pd

from sightline.analysis.comparison import Record, arm_rates, by_model
from sightline.core.selection import NO_BOXES
from sightline.core.table import Table, format_value
from sightline.errors import SightlineError
from sightline.report.columns import build_table, has_other, top
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker, any_run_has
from sightline.rows.source import Audited, Source
from sightline.statistics.arm_rows import plain_rows
from sightline.statistics.metrics import METRICS

PLAIN = {"annotation", NO_BOXES}
"""What rows of a run with annotated boxes say."""


@SECTIONS.register("boxes")
class Boxes(SectionMaker):
    id = "boxes"
    title = "Box sources"
    order = 160
    lead = "What selectors that look at boxes do when nobody hands them the annotation."
    needs = (any_run_has(has_other("box_source", *PLAIN)),)

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: box_source_table(context.source))


def box_source_frame(frame: pd.DataFrame, quality: Mapping[str, Mapping[str, Any]] | None = None) -> pd.DataFrame:
    """Every arm under every box source; coverage is that of the annotated regions throughout.

    ``quality`` maps a box source to the ``boxes`` entry of its run's manifest: missing rate, best IoU, latency.
    """
    plain = plain_rows(frame)
    if set(plain["box_source"].dropna().unique()) <= {"annotation", NO_BOXES}:
        raise SightlineError("all rows saw annotated boxes; run again with --box-source and give both runs")
    records: list[Record] = []
    for model, rows in by_model(plain):
        for (arm, source), own in rows.groupby(["plain_arm", "box_source"], sort=False):
            record = {"model": model, "arm": arm, "box_source": source, **arm_rates(own)}
            record["boxes_ms"] = float(own["boxes_ms"].astype(float).mean()) if "boxes_ms" in own else math.nan
            known = (quality or {}).get(str(source), {})
            record |= {name: known.get(name, math.nan) for name in ("missing_rate", "best_iou", "boxes_per_probe")}
            records.append(record)
    return pd.DataFrame(records)


def box_source_table(source: Source) -> Table | None:
    """Every arm under every box source, runs over the same probes and weights together."""
    groups: dict[tuple[str, str], list[Audited]] = {}
    for audited in source.runs:
        groups.setdefault((audited.setting, str(audited.run.manifest.get("probe_digest"))), []).append(audited)
    shown = [runs for runs in groups.values() if any(set(run.frame["box_source"].unique()) - PLAIN for run in runs)]
    if not shown:
        return None
    frames = []
    for runs in shown:
        # Two runs may hold the same arm with the same boxes: it counts once.
        rows = pd.concat([run.rows for run in runs], ignore_index=True)
        rows = rows.drop_duplicates(["arm", "box_source", "intervention", "view", "probe_id"])
        quality = {str(run.run.manifest.get("box_source")): run.run.manifest.get("boxes") or {} for run in runs}
        made = box_source_frame(rows, quality)
        frames.append(made.assign(arm=made["model"] + " · " + made["arm"]) if len(shown) > 1 else made)
    frame = pd.concat(frames, ignore_index=True)
    order = {arm: place for place, arm in enumerate(frame["arm"].unique())}
    several = frame.groupby("arm")["box_source"].transform("nunique") > 1
    frame = frame[several] if several.any() else frame
    frame = frame.sort_values("arm", key=lambda arms: arms.map(order), kind="stable", ignore_index=True)
    coverage = METRICS["pos_ecr"].label if source.yes_or_no else METRICS["pos_ecr"].label_of_words
    return build_table("box_sources", frame, source, sentence=_box_sentence(frame, coverage))


def _box_sentence(frame: pd.DataFrame, coverage: str) -> str:
    base = frame[frame["box_source"] == "annotation"].set_index("arm")
    others = frame[(frame["box_source"] != "annotation") & frame["arm"].isin(base.index)].copy()
    if others.empty:
        return "No run over the same probes saw the annotated boxes, so there is nothing to compare these sources with."
    others["loss"] = base["pos_ecr"].loc[others["arm"]].to_numpy() - others["pos_ecr"].to_numpy()
    if not others["loss"].abs().max() > 0:
        return "Coverage is the same under every box source."
    line = top(others, others["loss"].abs())
    before = base.loc[line["arm"]]
    now, then = (
        f"{format_value(found['pos_ecr'], 'score')} and accuracy {format_value(found['accuracy'], 'score')}"
        for found in (line, before)
    )
    return (
        f"The box source moves {line['arm']} most: {coverage} is {now} with {line['box_source']} boxes, {then} with "
        "the annotation."
    )
