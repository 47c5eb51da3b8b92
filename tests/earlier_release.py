"""Run folders as an earlier release left them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq


def edited(run: Path, **fields: Any) -> None:
    """``run.json`` with some other fields, as the release before wrote it: without checksums. None removes a field."""
    facts = {**json.loads((run / "run.json").read_text(encoding="utf-8")), **fields}
    for name in ("checksum", "probes_checksum", *(name for name, value in fields.items() if value is None)):
        facts.pop(name, None)
    (run / "run.json").write_text(json.dumps(facts), encoding="utf-8")


def without_marks(run: Path) -> None:
    """Takes from all files of a run what they are, and from its manifest that they say so."""
    for file in run.rglob("*.parquet"):
        pq.write_table(pq.read_table(file, partitioning=None), file)
    edited(run, marked=None)
