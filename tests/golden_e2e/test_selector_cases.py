"""What the artifact's selectors kept, and the geometry of it, wherever that can be checked without running a model.

Explicit scores on odd grids with ties and many boxes; and all recorded runs whose masks depend on nothing but cells,
boxes and the seeded draw.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from sightline import SELECTORS, Budget
from sightline.geometry.cells import grid_cells, tile_cells
from sightline.geometry.coverage import RegionGeometry
from tests.conftest import golden_dir
from tests.golden.audit_answers import kept, view_of
from tests.golden_e2e.reference import find, from_artifact

MODELS = ("llava", "internvl", "qwen3vl")
EXTERNAL = ("visionzip", "fastv", "scope", "coin", "anchorprune")


def read(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "record" not in metafunc.fixturenames:
        return
    path = golden_dir(metafunc.config, "golden_e2e") / "selector_cases.jsonl.gz"
    missing = pytest.param(None, marks=pytest.mark.skip(reason=f"no {path.name}: pass --golden-dir DIR"))
    records = list(read(path)) if path.is_file() else [missing]
    metafunc.parametrize("record", records, ids=lambda r: f"case{r['case']}" if r else "none")


def test_selector_case(record: dict[str, Any]) -> None:
    cells = grid_cells(record["rows"], record["cols"])
    plane = RegionGeometry(cells, record["evidence"])
    view = view_of(cells, record["evidence"], key=record["salt"])
    settings = {"seed": record["seed"], "evidence_boost": record["evidence_boost"]}
    settings |= {"hybrid_core_ratio": record["core_ratio"], "hybrid_context_ratio": record["context_ratio"]}
    for rule, expected in record["result"].items():
        mask = kept(rule, record["scores"], record["uniqueness"], view, record["keep_count"], **settings)
        assert mask.tolist() == expected["kept"], rule
        found = plane.measure(mask)
        ours = (found.ecr, found.center_recall, found.patch_recall, found.lpp, found.geo_f1)
        theirs = tuple(expected[name] for name in ("ecr", "center", "patch", "lpp", "geo_f1"))
        assert ours == pytest.approx(theirs, abs=1e-9), rule


class Recorded:
    """Every run of one model: manifest entry, probe, cells and the artifact's record."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder, self.model = folder, model
        self.manifest = {run["run"]: run for run in json.loads(find(folder, "manifest.json").read_text())["runs"]}
        self.probes: dict[str, dict[tuple[str, str], dict[str, Any]]] = {}

    def __iter__(self) -> Iterator[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]:
        for record in read(self.folder / "runs" / f"{self.model}.jsonl.gz"):
            run = self.manifest[record["run"]]
            if "kept" in record and "replayed_masks" not in run:
                yield run, self.probe(run["probes"], record), record

    def probe(self, file: str, record: dict[str, Any]) -> dict[str, Any]:
        if file not in self.probes:
            rows = read(find(self.folder, f"inputs/{file}"))
            self.probes[file] = {(row.get("sample_id", row["id"]), row["probe"]): row for row in rows}
        return self.probes[file][record["sample_id"], record["probe"]]

    def cells(self, record: dict[str, Any]) -> np.ndarray:
        rows, columns = record["grid_h"], record["grid_w"]
        if self.model == "internvl":
            canvas, count = (record["tile_cols"], record["tile_rows"]), record["num_image_patches"]
            return tile_cells(canvas, count, record["patch_grid_h"], record["patch_grid_w"])
        return grid_cells(rows // 2, columns // 2) if self.model == "qwen3vl" else grid_cells(rows, columns)


@pytest.fixture(scope="module", params=MODELS)
def recorded(request: pytest.FixtureRequest) -> Recorded:
    folder = golden_dir(request.config, "golden_e2e")
    if not (folder / "runs" / f"{request.param}.jsonl.gz").is_file():
        pytest.skip(f"no runs of {request.param} in {folder.name}: pass --golden-dir DIR")
    return Recorded(folder, request.param)


def test_runs_that_need_no_scores_and_the_geometry_of_all(recorded: Recorded) -> None:
    """Random, grid, centre and every rule over box overlap: the same masks, down to the last index."""
    compared = 0
    for run, probe, record in recorded:
        rule, cells, where = run["selector"], recorded.cells(record), (record["run"], record["sample_id"])
        merged = rule == "visionzip"
        plane = RegionGeometry(cells, probe["evidence_regions"], union="sum_above_5000")
        found = plane.measure(np.arange(len(cells)) if merged else record["kept"], anchors=record["kept"])
        ours = (found.ecr, found.anchor_ecr, found.center_recall, found.patch_recall)
        theirs = (record["ecr"], record["anchor_ecr"] if merged else record["ecr"], record["center"], record["patch"])
        assert ours == pytest.approx(theirs, abs=1e-9), where
        if "embed_" in rule or rule in EXTERNAL:
            continue
        settings = {name: run[name] for name in ("seed", "hybrid_core_ratio", "evidence_boost") if name in run}
        name, arguments = from_artifact(rule, backbone=recorded.model, **settings)
        selector = cast(Any, SELECTORS.get(name))(**arguments)
        key = f"{record['sample_id']}:{record['probe']}:{run['keep_ratio']!r}:{selector.salt}"
        k = Budget.ratio(run["keep_ratio"]).resolve(record["full_tokens"])
        chosen = selector.select(view_of(cells, probe["evidence_regions"], key=key), k).anchors
        assert chosen.tolist() == record["kept"], where
        compared += 1
    assert compared > 0
