"""The demo: the shipped reader audited on the shipped confirmation scenes, on a laptop's CPU, without a network."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

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
METRICS = ("accuracy", "hfpr", "pos_ecr", "zero_coverage")
SHARD_IMAGES = 15
"""Small enough that the bar moves every few seconds, large enough to batch."""


@dataclass(frozen=True)
class Demo:
    run: Run
    summary: pd.DataFrame
    """``arm_summary`` of the run: one line per arm, METRICS with their 95 % intervals."""
    report: Path


def asset(*parts: str) -> Path:
    """A file or folder shipped with the package."""
    path = Path(str(files("sightline"))).joinpath("assets", *parts)
    if not path.exists():
        raise SightlineError(f"{path} is missing; reinstall sightline")
    return path


def run_demo(out: Path, *, limit: int | None = None, draws: int = 10_000, cases: int = 40) -> Demo:
    """Audits ``ARMS`` into ``out/run`` (or resumes there) and writes ``out/report.html``.

    ``limit`` audits only the first so many images, into a run folder of its own name.
    """
    from sightline.audit import audit
    from sightline.config import read_config
    from sightline.statistics.table import arm_summary

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

    summary = arm_summary(run.frame(), metrics=METRICS, draws=draws)
    return Demo(run, summary, build_report([run.path], out, cases=cases, draws=draws))
