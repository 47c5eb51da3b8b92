"""Does legibility order {resize, prune, merge} by answer change better than coverage? The embedded reader, drawn pages.

    python benchmarks/legibility.py [--images 100] [--out runs/legibility] [--arm target:0.3 ...]

Prints accuracy, coverage, legibility and changed answers per arm, then the rank correlations over arms and answers.
Where the arm ``resize`` is not registered, pages are shrunk by the reader's own pixel limits instead.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.table import Table

import sightline
from sightline.analysis.ordering_table import answer_changes, ordering_table
from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.selectors import SELECTORS
from sightline.statistics.metrics import METRICS
from sightline.statistics.summaries import arm_summary

ASSETS = Path(sightline.__file__).parent / "assets"
SCENES = ASSETS / "scenes" / "confirmation"
PRUNED = [f"{name}:{keep}" for keep in (0.5, 0.3, 0.15) for name in ("target", "random", "grid")]
MERGED = [f"{name}:{keep}" for keep in (0.5, 0.3) for name in ("tome", "visionzip_qwen")]
SIDES = (12, 9, 7)
"""Tokens along an edge of a shrunken page; whole, it has 14."""
WHOLE = 14 * 14
TOKEN_EDGE = 32
"""Input pixels along an edge of the reader's tokens."""
METRICS_SHOWN = ("accuracy", "pos_ecr", "legibility", "illegible")


def audited(out: Path, arms: list[str], images: int, **image_options: int) -> pd.DataFrame:
    """Rows of the embedded reader over the first pages of the confirmation scenes."""
    config = AuditConfig(
        model=str(ASSETS / "reader"),
        probes=SCENES / "probes.jsonl",
        images=SCENES / "images",
        out=out,
        arms=arms,
        matched_controls=False,
        limit=images,
        device="cpu",
        dtype="float32",
        image_options=image_options,
    )
    return audit(config).frame()


def shrunken(out: Path, side: int, images: int) -> pd.DataFrame:
    """Full over pages that the reader itself shrinks to side x side tokens, as rows of an arm ``resize``."""
    pixels = (side * TOKEN_EDGE) ** 2
    rows = audited(out / f"side-{side}", ["full"], images, min_pixels=pixels, max_pixels=pixels)
    keep = side * side / WHOLE
    return rows.assign(arm=f"resize:{keep:.2f}", plain_arm=f"resize:{keep:.2f}", selector="resize", keep=keep)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("runs/legibility"), help="folder for the runs; resumed")
    parser.add_argument("--arm", action="append", help="arms besides full and resize; some of each kind if not given")
    options = parser.parse_args()
    console = Console()
    arms = ["full", *(options.arm or [*PRUNED, *MERGED])]
    if "resize" in SELECTORS:
        arms += [f"resize:{side * side}t" for side in SIDES]
        rows = audited(options.out / "whole", arms, options.images)
    else:
        console.print("no arm resize is registered: pages are shrunk by the reader's pixel limits")
        parts = [shrunken(options.out, side, options.images) for side in SIDES]
        rows = pd.concat([audited(options.out / "whole", arms, options.images), *parts], ignore_index=True)
    console.print(per_arm(rows), orderings(rows), sep="\n")


def per_arm(rows: pd.DataFrame) -> Table:
    summary = arm_summary(rows, metrics=["keep", *METRICS_SHOWN], draws=1000)
    changed = answer_changes(rows).groupby("arm")["changed"].mean()
    table = Table("arm", "keep", *(METRICS[name].label for name in METRICS_SHOWN), "changed", box=None)
    for line in summary.to_dict("records"):
        values = [line["keep"], *(line[name] for name in METRICS_SHOWN), changed.get(line["arm"], 0.0)]
        table.add_row(line["arm"], *(f"{value:.3f}" for value in values))
    return table


def orderings(rows: pd.DataFrame) -> Table:
    table = Table("over", "change", "n", "coverage", "legibility", "coverage - legibility", box=None)
    for line in ordering_table(rows).to_dict("records"):
        values = [
            f"{line[key]:+.3f} ({line[f'{key}_low']:+.3f} to {line[f'{key}_high']:+.3f})"
            for key in ("ecr", "legibility", "advantage")
        ]
        table.add_row(line["over"], line["change"], str(line["n"]), *values)
    return table


if __name__ == "__main__":
    main()
