"""The demo: the shipped reader audited on the shipped confirmation scenes, on a laptop's CPU, without a network."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from sightline.errors import SightlineError

if TYPE_CHECKING:
    import pandas as pd

    from sightline.store import Run

ARMS = (
    "full",
    "target:0.3",
    "target_grid:0.3",
    "random:0.3",
    "grid:0.3",
    "shuffled:0.3",
    "protected:0.3",
    "soft_evidence:0.3",
)
PICTURE = "right-without-evidence.png"
SHARD_IMAGES = 15
"""Small enough that the bar moves every few seconds, large enough to batch."""


@dataclass(frozen=True)
class Demo:
    run: Run
    summary: pd.DataFrame
    """``arm_summary`` of the run: one line per arm, the demo's metrics with their 95 % intervals."""
    report: Path
    picture: Path | None
    """The unsupported answer with the largest margin; None if there is none."""


def asset(*parts: str) -> Path:
    """A file or folder shipped with the package."""
    path = Path(str(files("sightline"))).joinpath("assets", *parts)
    if not path.exists():
        raise SightlineError(f"{path} is missing; reinstall sightline")
    return path


def run_demo(out: Path, *, limit: int | None = None, draws: int = 10_000, cases: int = 40) -> Demo:
    """Audits ``ARMS`` into ``out/run`` (or resumes there) and writes ``out/report.html`` and one picture.

    ``limit`` audits only the first so many images, into a run folder of its own name.
    """
    from sightline.auditing.audit import audit
    from sightline.auditing.config import read_config
    from sightline.statistics.metrics import metrics_shown_in
    from sightline.statistics.summaries import arm_summary

    scenes = asset("scenes", "confirmation")
    settings = {
        "model": str(asset("reader")),
        "probes": scenes / "probes.jsonl",
        "images": scenes / "images",
        "out": out / ("run" if limit is None else f"run-{limit}-images"),
        "arms": list(ARMS),
        "dtype": "float32",
        "shard_images": SHARD_IMAGES,
        "limit": limit,
    }
    run = audit(read_config(None, settings))
    # Imported late: what a report lacks shall not cost the run.
    from sightline.report.build import build_report

    shown = [metric.name for metric in metrics_shown_in("demo")]
    summary = arm_summary(run.frame(), metrics=shown, draws=draws)
    return Demo(run, summary, build_report([run.path], out, cases=cases, draws=draws), save_picture(run, out / PICTURE))


def save_picture(run: Run, path: Path) -> Path | None:
    """What the pruned prefix saw of the surest unsupported answer."""
    from sightline.report.overlay import overlay
    from sightline.statistics.correct_positives import unsupported_rows
    from sightline.statistics.plain_rows import plain_rows
    from sightline.store.load import unpack_cells, unpack_mask

    rows = plain_rows(run.frame())
    unsupported = rows[unsupported_rows(rows)]
    if unsupported.empty:
        return None
    row = unsupported.sort_values("margin").iloc[-1]
    record = next(record for record in run.images.to_pylist() if record["image_key"] == row["image_key"])
    regions = next(probe["regions"] for probe in run.probes if probe["id"] == row["probe_id"])
    cells = unpack_cells(record["cells"])
    image = Image.open(asset("scenes", "confirmation", "images") / record["image"])
    overlay(image, cells, unpack_mask(row["kept_mask"], len(cells)), regions).save(path)
    return path
