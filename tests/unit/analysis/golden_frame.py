"""Recorded runs of the reference as rows of ours: the columns that intervention tables read."""

from __future__ import annotations

import csv
import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from sightline.geometry.cells import grid_cells, tile_cells
from sightline.geometry.coverage import RegionGeometry
from sightline.probes import read_probes
from sightline.store.marks import pack_mask


@cache
def records(folder: Path, run: str) -> tuple[dict[str, Any], ...]:
    found = []
    for model in ("qwen3vl", "llava", "internvl"):
        with gzip.open(folder / "runs" / f"{model}.jsonl.gz", "rt", encoding="utf-8") as lines:
            found += [json.loads(line) for line in lines if f'"run": "{run}"' in line]
    assert found, run
    return tuple(found)


@cache
def regions(folder: Path) -> dict[str, tuple[tuple[float, float, float, float], ...]]:
    files = (folder / "inputs" / name for name in ("probes_dev.jsonl", "probes_conf.jsonl"))
    return {probe.id: probe.regions for file in files for probe in read_probes(file).probes}


def cells_of(record: dict[str, Any]) -> np.ndarray:
    if "tile_rows" in record:
        canvas = (record["tile_cols"], record["tile_rows"])
        return tile_cells(canvas, record["num_image_patches"], record["patch_grid_h"], record["patch_grid_w"])
    merge = round((record["grid_h"] * record["grid_w"] / record["full_tokens"]) ** 0.5)
    return grid_cells(record["grid_h"] // merge, record["grid_w"] // merge)


def frame(
    data: Path,
    run: str,
    *,
    arm: str,
    model: str = "m",
    intervention: str | None = None,
    view: str | None = None,
    threshold: float = 0.0,
    precision: bool = False,
    true_regions: bool = False,
    **fields: Any,
) -> pd.DataFrame:
    """One recorded run.

    ``precision`` computes LPP and Geo-F1, which the record does not have, from its mask; ``true_regions`` also the
    coverage of the annotated regions, where the record has that of the boxes a selector was shown.
    """
    folder = data / "golden_e2e"
    rows = []
    for record in records(folder, run):
        label = "yes" if record["polarity"] == "positive" else "no"
        predicted = "yes" if record["margin"] >= threshold else "no"
        shown = view or record["probe"]
        row = {
            "model": model, "arm": arm, "plain_arm": arm, "selector": arm.split(":")[0],
            "budget": arm.split(":")[1] if ":" in arm else "1.0",
            "intervention": intervention or ("none" if shown == "orig" else shown), "view": shown,
            "probe_id": record["sample_id"], "image_id": record["sample_id"].split(":")[0].removeprefix("textocr-"),
            "label": label, "margin": record["margin"], "predicted": predicted, "correct": predicted == label,
            "keep": record.get("effective_keep_ratio", 1.0), "ecr": record.get("ecr", 1.0),
            "anchor_ecr": record.get("anchor_ecr", 1.0), "center_recall": record.get("center", 1.0),
            "patch_recall": record.get("patch", 1.0), "lpp": np.nan, "geo_f1": np.nan,
            "anchor_lpp": np.nan, "anchor_geo_f1": np.nan, "lineage_mask": None,
            "kept_mask": b"", "positions": "compact", "box_source": "annotation", **fields,
        }  # fmt: skip
        if "kept" in record:
            kept = np.zeros(record["full_tokens"], dtype=bool)
            kept[record["kept"]] = True
            row["kept_mask"] = pack_mask(kept)
            if precision or true_regions:
                geometry = RegionGeometry(cells_of(record), regions(folder)[record["sample_id"]]).measure(kept)
                row |= {name: getattr(geometry, name) for name in ("lpp", "geo_f1", "anchor_lpp", "anchor_geo_f1")}
                if true_regions:
                    row |= {name: getattr(geometry, name) for name in ("ecr", "center_recall", "patch_recall")}
        rows.append(row)
    return pd.DataFrame(rows)


def scales(data: Path, run: str) -> pd.DataFrame:
    """Evidence area and median cell area per probe, as ``probe_scales`` gives them for a run of ours."""
    found = {}
    for record in records(data / "golden_e2e", run):
        cells = cells_of(record)
        area = RegionGeometry(cells, regions(data / "golden_e2e")[record["sample_id"]]).area
        cell = float(np.median((cells[:, 2] - cells[:, 0]) * (cells[:, 3] - cells[:, 1])))
        found[record["sample_id"]] = {
            "evidence_area": area, "median_cell_area": cell, "box_cell_ratio": area / cell,
        }  # fmt: skip
    return pd.DataFrame.from_dict(found, orient="index")


def analysis(data: Path, *parts: str) -> list[dict[str, str]]:
    with open(data.joinpath("golden_e2e", "analysis", *parts), newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))
