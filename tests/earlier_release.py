"""Run folders as an earlier release left them."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq


def without_marks(run: Path) -> None:
    """Takes from all files of a run what they are, and from its manifest that they say so."""
    for file in run.rglob("*.parquet"):
        pq.write_table(pq.read_table(file, partitioning=None), file)
    manifest = run / "run.json"
    facts = json.loads(manifest.read_text(encoding="utf-8"))
    facts.pop("marked", None)
    manifest.write_text(json.dumps(facts), encoding="utf-8")
