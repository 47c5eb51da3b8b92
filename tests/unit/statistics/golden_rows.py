"""Rows of the reference runs in ``golden_e2e``, and the resampling conventions its analysis scripts used.

The conventions are written here, not in the package: Sightline has one (PCG64, np.quantile), the reference had several.
"""

import csv
import gzip
import hashlib
import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from sightline.geometry.cells import grid_cells, tile_cells
from sightline.geometry.coverage import RegionGeometry
from sightline.probes import read_probes
from sightline.statistics.arm_rows import ArmRows
from sightline.store.shard_files import pack_mask

GEOMETRY = {"ecr": "ecr", "anchor_ecr": "anchor_ecr", "center_recall": "center", "patch_recall": "patch"}
"""Our names -> the reference's."""
FULL_GEOMETRY = dict.fromkeys(GEOMETRY.values(), 1.0)


@cache
def _lines(folder: Path) -> dict[str, list[str]]:
    """The lines of every recorded run."""
    found: dict[str, list[str]] = {}
    for model in ("qwen3vl", "llava", "internvl"):
        for line in gzip.decompress((folder / "runs" / f"{model}.jsonl.gz").read_bytes()).decode().splitlines():
            found.setdefault(line.partition('"run": "')[2].partition('"')[0], []).append(line)
    return found


@cache
def records(folder: Path, run: str) -> tuple[dict[str, Any], ...]:
    return tuple(map(json.loads, _lines(folder)[run]))


@cache
def run_frame(data: Path, run: str, view: str = "orig") -> pd.DataFrame:
    """One reference run in sample-id order; a full prefix, which carries no geometry, covers everything."""
    found = pd.DataFrame(records(data / "golden_e2e", run))
    found = found[found["probe"] == view].drop(columns="kept", errors="ignore")
    assert len(found), run
    found["image_id"] = found["sample_id"].str.split(":").str[0].str.removeprefix("textocr-")
    whole = {**dict.fromkeys(FULL_GEOMETRY, np.nan), **found}  # a run without any mask has no such column
    return pd.DataFrame(whole).fillna(FULL_GEOMETRY).sort_values("sample_id").reset_index(drop=True)


@cache
def run_rows(data: Path, run: str, threshold: float = 0.0) -> ArmRows:
    frame = run_frame(data, run)
    columns: dict[str, Any] = {ours: frame[theirs] for ours, theirs in GEOMETRY.items()}
    given = (frame["polarity"] == "positive", frame["margin"], frame["image_id"])
    return ArmRows.of(*given, threshold=threshold, **columns)


def development(frame: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """The grouped hash split of the reference: bucket of sha1(image id) below 5 of 10."""
    return np.array([int(hashlib.sha1(i.encode()).hexdigest()[:8], 16) % 10 < 5 for i in frame["image_id"]])


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


Indices = npt.NDArray[np.int64]
Draws = Sequence[float] | npt.NDArray[np.float64]


def twister_indices(seed: int | str, draws: int, n: int) -> Indices:
    """(draws, n) of CPython's generator, n x randrange(n) per draw; n x choice of n things is the same stream.

    randrange(n) takes the top bits of 32-bit outputs and rejects what is not below n. Doing that for a whole array of
    outputs from the same state gives the same numbers without a Python loop.
    """
    *key, position = random.Random(seed).getstate()[1]
    source = np.random.RandomState()
    source.set_state(("MT19937", np.array(key, dtype=np.uint32), position, 0, 0.0))
    shift = np.uint32(32 - n.bit_length())
    found = np.zeros(0, dtype=np.uint32)
    while len(found) < draws * n:
        outputs = source.randint(0, 2**32, size=draws * n, dtype=np.uint32) >> shift
        found = np.concatenate([found, outputs[outputs < n]])
    return found[: draws * n].reshape(draws, n).astype(np.int64)


def counts(indices: Indices) -> npt.NDArray[np.float64]:
    """(draws, n) drawn units -> (draws, n) counts, the form our functions take."""
    draws, n = indices.shape
    flat = (indices + np.arange(draws)[:, None] * n).ravel()
    return np.bincount(flat, minlength=draws * n).reshape(draws, n).astype(np.float64)


def _between(values: Draws, low: int, high: int) -> tuple[float, float]:
    ordered = np.sort(np.asarray(values))
    return float(ordered[low]), float(ordered[high])


def floor_index_interval(values: Draws) -> tuple[float, float]:
    """One of the reference's percentile rules."""
    return _between(values, int(0.025 * len(values)), min(len(values) - 1, int(0.975 * len(values))))


def lower_rank_interval(values: Draws) -> tuple[float, float]:
    """Another."""
    return _between(values, int(0.025 * (len(values) - 1)), int(0.975 * (len(values) - 1)))


def linear_interval(values: Draws) -> tuple[float, float]:
    """np.quantile's default, which is also ours."""
    low, high = np.quantile(np.asarray(values), [0.025, 0.975])
    return float(low), float(high)


# The same runs as rows of ours: the columns that intervention tables read.


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
        whole = {"effective_keep_ratio": 1.0, **FULL_GEOMETRY, **record}
        row = {
            "model": model, "arm": arm, "plain_arm": arm, "selector": arm.split(":")[0],
            "budget": arm.partition(":")[2].split(":")[0] or "1.0", "view": shown,
            "intervention": intervention or ("none" if shown == "orig" else shown), "label": label,
            "probe_id": record["sample_id"], "image_id": record["sample_id"].split(":")[0].removeprefix("textocr-"),
            "margin": record["margin"], "predicted": predicted, "correct": predicted == label,
            "keep": whole["effective_keep_ratio"], **{ours: whole[theirs] for ours, theirs in GEOMETRY.items()},
            **dict.fromkeys(("lpp", "geo_f1", "anchor_lpp", "anchor_geo_f1"), np.nan), "lineage_mask": None,
            "kept_mask": b"", "positions": "compact", "box_source": "annotation", **fields,
        }  # fmt: skip
        if "kept" in record:
            kept = np.isin(np.arange(record["full_tokens"]), record["kept"])
            row["kept_mask"] = pack_mask(kept)
            names: tuple[str, ...] = ()
            names += ("lpp", "geo_f1", "anchor_lpp", "anchor_geo_f1") if precision or true_regions else ()
            names += ("ecr", "center_recall", "patch_recall") if true_regions else ()
            if names:
                geometry = RegionGeometry(cells_of(record), regions(folder)[record["sample_id"]]).measure(kept)
                row |= {name: getattr(geometry, name) for name in names}
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
    return table(data.joinpath("golden_e2e", "analysis", *parts))
