"""Odd grids, ties and many boxes: what every selector of the artifact's dispatcher kept, and the geometry of it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from sightline.geometry.cells import grid_cells
from sightline.geometry.coverage import RegionGeometry
from tests.conftest import SHARED
from tests.golden.adapters.audit_rules import kept, view_of


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    chosen = metafunc.config.getoption("--golden-dir")
    path = (Path(chosen) if chosen else SHARED / "golden_e2e") / "selector_cases.jsonl.gz"
    if path.is_file():
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            records = [json.loads(line) for line in lines]
    else:
        records = [pytest.param(None, marks=pytest.mark.skip(reason=f"no {path.name}: pass --golden-dir DIR"))]
    metafunc.parametrize("record", records, ids=lambda r: f"case{r['case']}" if r else "none")


def test_selector_case(record: dict[str, Any]) -> None:
    cells = grid_cells(record["rows"], record["cols"])
    plane = RegionGeometry(cells, record["evidence"])
    view = view_of(cells, record["evidence"], key=record["salt"])
    for rule, expected in record["result"].items():
        mask = kept(
            rule,
            record["scores"],
            record["uniqueness"],
            view,
            record["keep_count"],
            seed=record["seed"],
            hybrid_core_ratio=record["core_ratio"],
            hybrid_context_ratio=record["context_ratio"],
            evidence_boost=record["evidence_boost"],
        )
        assert mask.tolist() == expected["kept"], rule
        found = plane.measure(mask)
        ours = (found.ecr, found.center_recall, found.patch_recall, found.lpp, found.geo_f1)
        theirs = tuple(expected[name] for name in ("ecr", "center", "patch", "lpp", "geo_f1"))
        assert ours == pytest.approx(theirs, abs=1e-9), rule
