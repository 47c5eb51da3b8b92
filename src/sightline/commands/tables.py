"""What a run says at a glance, on a terminal."""

from __future__ import annotations

import numpy as np
import pandas as pd
from rich.console import Console
from rich.table import Table

from sightline.store import Run


def summary(frame: pd.DataFrame) -> pd.DataFrame:
    """One line per arm: the answer's quality and risk, the evidence's survival, the budget really spent."""
    records = []
    for arm, rows in frame.groupby("arm", sort=False):
        positive, negative = rows[rows["label"] == "yes"], rows[rows["label"] == "no"]
        good = positive[positive["correct"]]
        records.append(
            {
                "arm": arm,
                "keep": rows["keep"].mean(),
                "accuracy": rows["correct"].mean(),
                "hFPR": (negative["predicted"] == "yes").mean() if len(negative) else np.nan,
                "PosECR": positive["ecr"].mean(),
                "NegSRC": negative["ecr"].mean(),
                "evidence gone": (good["ecr"] <= 1e-12).mean() if len(good) else np.nan,
                "select ms": rows["select_ms"].mean() + rows["signal_ms"].mean(),
                "language ms": rows["language_ms"].mean(),
            }
        )
    return pd.DataFrame(records)


def print_summary(run: Run) -> None:
    frame = run.frame()
    plain = frame[(frame["intervention"] == "none") & (frame["view"] == "orig")]
    frame = frame if plain.empty else plain
    manifest = run.manifest
    table = Table(box=None, pad_edge=False)
    lines = summary(frame)
    for column in lines.columns:
        first = column == "arm"
        table.add_column(str(column), justify="left" if first else "right", no_wrap=first)
    for record in lines.itertuples(index=False):
        values = [
            f"{v:.1f}" if str(c).endswith("ms") else f"{v:.3f}"
            for c, v in zip(lines.columns[1:], record[1:], strict=True)
        ]
        table.add_row(str(record[0]), *("-" if v == "nan" else v for v in values))
    console = Console()
    console.print(table)
    probes, images = frame["probe_id"].nunique(), frame["image_id"].nunique()
    console.print("evidence gone: share of right yes answers none of whose evidence cells was kept; ms per row")
    console.print(
        f"{manifest['model']} ({manifest['model_type']}, {manifest['dtype']}, {manifest['device']}, "
        f"positions {manifest['positions']}): {probes} probes on {images} images; rows in {run.path}",
        markup=False,
        highlight=False,
    )
