"""The overview of a run: table and frontier at once, headline and intervals from a process beside the server.

Every number says which rows stand behind it: the query that a cell of the table, or a point of the frontier, opens.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from sightline.core.row import ROW_COLUMNS
from sightline.core.table import Table, unlettered
from sightline.errors import SightlineError
from sightline.report.columns import panel_of
from sightline.report.sections.frontier import measures_of
from sightline.report.summary import ReportSummary, headlines, main_table, summarise
from sightline.report.svg import padded, sequential
from sightline.rows.reader import finite_in_every_arm, paired
from sightline.rows.run import joined_words, with_same_images
from sightline.rows.source import read_source
from sightline.statistics.arm_rows import are_in_words, is_plain
from sightline.statistics.metrics import METRICS, ZERO_COVERAGE
from sightline.statistics.summaries import arm_points
from sightline.view.rows import Rows

POSITIVE = 'label == "yes"'
YES_OR_NO: dict[str, tuple[str, str, bool]] = {
    "accuracy": ("not correct", "margin", False),
    "hfpr": ('label == "no" and predicted == "yes"', "margin", True),
    "auroc": ("", "margin", False),
    "pos_ecr": (POSITIVE, "ecr", False),
    "relative_pos_ecr": (f"{POSITIVE} and visible > 0", "ecr", False),
    "anchor_ecr": (POSITIVE, "anchor_ecr", False),
    "neg_src": ('label == "no"', "ecr", True),
    "unsupported": (f"{POSITIVE} and correct and ecr <= {ZERO_COVERAGE}", "margin", True),
    "unsupported_by_pruning": (f"{POSITIVE} and correct and visible > 0 and ecr <= {ZERO_COVERAGE}", "margin", True),
}
IN_WORDS: dict[str, tuple[str, str, bool]] = {
    "accuracy": ("not correct", "score", False),
    "score": ("", "score", False),
    "exact": ("not correct", "score", False),
    "pos_ecr": ("", "ecr", False),
    "relative_pos_ecr": ("visible > 0", "ecr", False),
    "anchor_ecr": ("", "anchor_ecr", False),
    "unsupported": (f"correct and ecr <= {ZERO_COVERAGE}", "score", True),
    "unsupported_by_pruning": (f"correct and visible > 0 and ecr <= {ZERO_COVERAGE}", "score", True),
}


def rows_behind(metric: str, arm: str, in_words: bool) -> dict[str, str]:
    """Query, column and direction: the rows that a metric of an arm is about, those that lower it first."""
    said, sort, down = (IN_WORDS if in_words else YES_OR_NO).get(metric, ("", "", False))
    own = f"arm == {json.dumps(arm, ensure_ascii=False)}"
    return {"query": f"{own} and {said}" if said else own, "sort": sort, "down": "1" if down else ""}


NEEDED = (
    "arm", "plain_arm", "selector", "regime", "box_source", "intervention", "view", "probe_id", "image_id", "label",
    "kind", "predicted", "correct", "keep", "keep_spent", "n_regions", "visible", "ecr", "anchor_ecr", "lpp", "geo_f1",
    "anchor_lpp", "anchor_geo_f1", "worst_region", "all_half", "legibility", "center_recall", "patch_recall", "policy",
    "n_tokens", "k_tokens",
)  # fmt: skip
"""Columns of every row that metrics read."""
FIXED = {column.name for column in ROW_COLUMNS}
"""Columns of every row; whatever else there is comes from the scorer."""


def plain_frame(rows: Rows) -> tuple[pd.DataFrame, list[str]]:
    """The rows that a report's main table is about, and what had to be left out of it."""
    own = rows.table.column_names
    light = rows.table.select([name for name in own if name in NEEDED or name not in FIXED])
    if "margin" in own and rows.table.column("margin").null_count == rows.count:
        light = light.drop_columns(["margin"])
    frame: pd.DataFrame = _decoded(light).to_pandas(strings_to_categorical=False)
    notes: list[str] = []
    frame = frame[is_plain(frame)]
    if frame.empty:
        return frame, notes
    frame = finite_in_every_arm(frame, notes).reset_index(drop=True)
    return (frame if frame.empty else paired(frame, notes)), notes


def _decoded(table: pa.Table) -> pa.Table:
    """Strings as the statistics expect them."""
    return pa.table(
        {
            name: column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column
            for name, column in zip(table.column_names, table.columns, strict=True)
        }
    )


def table_without_intervals(rows: Rows, same: Mapping[str, str]) -> dict[str, Any]:
    """The table's cells and the frontier's points; images of the same pixels count as one."""
    frame, notes = plain_frame(rows)
    frame["image_id"] = with_same_images(frame["image_id"], same)
    notes += [joined_words(same)] if same else []
    if frame.empty:
        return {"table": None, "points": [], "notes": [*notes, "no plain row has an answer that counts yet"]}
    in_words = bool(are_in_words(frame).any())
    metrics = [metric.name for metric in METRICS.values() if in_words or metric.answers != "words"]
    lines = []
    for arm, part in frame.groupby("plain_arm", sort=False, observed=True):
        first = part.iloc[0]
        line: dict[str, Any] = {
            "arm": arm,
            "arm_name": arm,
            "run": "",
            "regime": first["regime"],
            "box_source": first["box_source"],
            "selector": first["selector"],
            "n_probes": len(part),
            "n_images": part["image_id"].nunique(),
            "few_differ": "",
        }
        line |= arm_points(part, metrics)
        line |= {f"{name}_{end}": math.nan for name in metrics for end in ("low", "high")}
        lines.append(line)
    arms = pd.DataFrame(lines)
    summary = ReportSummary(arms, pd.DataFrame(), [])
    yes_or_no = not in_words and set(frame["label"]) <= {"yes", "no"}
    return {
        "table": table_cells(main_table(summary), in_words),
        "points": frontier_points(arms, in_words, yes_or_no),
        "axes": axes_of(in_words, yes_or_no),
        "notes": notes,
    }


def table_cells(table: Table, in_words: bool) -> dict[str, Any]:
    """A table as a page draws it; every cell says which rows stand behind it."""
    columns = [{"key": column.key, "title": column.title, "help": column.help} for column in table.columns]
    panels = [
        {
            "heading": panel.heading,
            "rows": [
                [
                    {**asdict(cell), "behind": rows_behind(column.key, row[0].text, in_words)}
                    for cell, column in zip(row, table.columns, strict=True)
                ]
                for row in panel.rows
            ],
        }
        for panel in table.panels()
    ]
    return {"title": table.title, "caption": table.caption, "columns": columns, "panels": panels}


def axes_of(in_words: bool, yes_or_no: bool) -> list[str]:
    return [METRICS[name].label for name in measures_of(in_words, yes_or_no)]


def frontier_points(arms: pd.DataFrame, in_words: bool, yes_or_no: bool) -> list[dict[str, Any]]:
    """One point per arm: its place, its intervals where they are known, what it may read."""
    found: list[dict[str, Any]] = []
    for line in arms.to_dict("records"):
        point: dict[str, Any] = {"arm": line["arm_name"], "full": line["selector"] == "full"}
        for axis, name in zip(("x", "y", "colour"), measures_of(in_words, yes_or_no), strict=True):
            low, high = line.get(f"{name}_low"), line.get(f"{name}_high")
            point[axis] = _finite(line.get(name))
            point[f"{axis}_range"] = [_finite(low), _finite(high)] if _finite(low) is not None else None
        rows = rows_behind("", line["arm_name"], in_words)
        found.append({**point, "panel": unlettered(panel_of(line["regime"])), "behind": rows})
    low, high = padded([point["colour"] for point in found if point["colour"] is not None])
    for point in found:
        point["fill"] = "none" if point["colour"] is None else sequential((point["colour"] - low) / (high - low))
    return found


def _finite(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


DRAWS = 2000
"""Bootstrap draws, as the page says."""
BUSY, DONE, FAILED = "computing", "done", "failed"


@dataclass
class BackgroundIntervals:
    """What is computed of one run, for the version of its rows that it was asked for last."""

    folder: Path
    _lock: threading.Lock = field(init=False, default_factory=threading.Lock)
    _process: subprocess.Popen[bytes] | None = field(init=False, default=None)
    _found: tuple[int, dict[str, Any]] | None = field(init=False, default=None)
    """Of which version, and what."""
    _asked: int | None = field(init=False, default=None)
    """The version that a page has asked for before."""
    _stopped: bool = field(init=False, default=False)

    def of(self, version: int) -> dict[str, Any]:
        """The result for these rows; ``{"state": "computing"}`` while there is none. Begun when asked a second time."""
        with self._lock:
            if self._found is not None and self._found[0] == version:
                return self._found[1]
            if self._asked != version:  # the page that asks first is shown before anything else begins
                self._asked = version
            elif self._process is None and not self._stopped:
                # A group of its own: Ctrl-C is for the server, which ends this process itself. Not a session: there it
                # would have a share of the cores as large as the server's, however nice it is.
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "sightline.view.overview", str(self.folder)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    process_group=0,
                )
                threading.Thread(target=self._read, args=(version, self._process), daemon=True).start()
        return {"state": BUSY}

    def _read(self, version: int, process: subprocess.Popen[bytes]) -> None:
        output = process.communicate()[0]
        try:
            found = json.loads(output)
        except ValueError:
            found = {"state": FAILED, "why": f"the process ended with code {process.returncode}"}
        with self._lock:
            self._found, self._process = (version, found), None

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._process is not None:
                self._process.kill()


def measured(folder: str, draws: int = DRAWS) -> dict[str, Any]:
    """The report's own headline, table and frontier, with intervals; in one line what stands in the way of them."""
    try:
        source = read_source([folder])
        summary = summarise(source, draws)
    except SightlineError as error:
        return {"state": FAILED, "why": str(error)}
    audited = source.runs[0]
    return {
        "state": DONE,
        "headline": headlines(source, summary),
        "table": table_cells(main_table(summary), audited.in_words),
        "points": frontier_points(summary.arms, audited.in_words, audited.yes_or_no),
        "axes": axes_of(audited.in_words, audited.yes_or_no),
        "notes": source.notes,
        "draws": draws,
    }


if __name__ == "__main__":
    if hasattr(os, "nice"):
        os.nice(10)  # whoever looks at a page is served first
    print(json.dumps(measured(sys.argv[1])))
