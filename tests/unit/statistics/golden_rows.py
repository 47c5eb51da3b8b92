"""Rows of the reference runs in ``golden_e2e``, and the resampling conventions its analysis scripts used.

The conventions are written here, not in the package: Sightline has one (PCG64, np.quantile), the reference had several.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from sightline.statistics.arm_rows import ArmRows

FULL_GEOMETRY = {"ecr": 1.0, "anchor_ecr": 1.0, "center": 1.0, "patch": 1.0}


@cache
def _records(folder: Path) -> pd.DataFrame:
    rows = []
    for model in ("qwen3vl", "llava", "internvl"):
        with gzip.open(folder / "runs" / f"{model}.jsonl.gz", "rt") as lines:
            for line in lines:
                record = json.loads(line)
                record.pop("kept", None)
                rows.append(record)
    frame = pd.DataFrame(rows)
    frame["image_id"] = frame["sample_id"].str.split(":").str[0].str.removeprefix("textocr-")
    return frame


def run_frame(data: Path, run: str, view: str = "orig") -> pd.DataFrame:
    """One reference run in sample-id order; a full prefix, which carries no geometry, covers everything."""
    records = _records(data / "golden_e2e")
    frame = records[(records["run"] == run) & (records["probe"] == view)].copy()
    assert len(frame), run
    return frame.fillna(FULL_GEOMETRY).sort_values("sample_id").reset_index(drop=True)


def run_rows(data: Path, run: str, threshold: float = 0.0) -> ArmRows:
    frame = run_frame(data, run)
    return ArmRows.of(
        frame["polarity"] == "positive",
        frame["margin"],
        frame["image_id"],
        threshold=threshold,
        ecr=frame["ecr"],
        anchor_ecr=frame["anchor_ecr"],
        center_recall=frame["center"],
        patch_recall=frame["patch"],
    )


def development(frame: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """The grouped hash split of the reference: bucket of sha1(image id) below 5 of 10."""
    return np.array([int(hashlib.sha1(i.encode()).hexdigest()[:8], 16) % 10 < 5 for i in frame["image_id"]])


def table(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as lines:
        return list(csv.DictReader(lines))


Indices = npt.NDArray[np.int64]


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


def floor_index_interval(values: Sequence[float] | npt.NDArray[np.float64]) -> tuple[float, float]:
    """sorted[int(0.025 n)], sorted[int(0.975 n)]: one of the reference's percentile rules."""
    ordered = np.sort(np.asarray(values))
    return float(ordered[int(0.025 * len(ordered))]), float(ordered[min(len(ordered) - 1, int(0.975 * len(ordered)))])


def lower_rank_interval(values: Sequence[float] | npt.NDArray[np.float64]) -> tuple[float, float]:
    """sorted[int(q (n - 1))]: another."""
    ordered = np.sort(np.asarray(values))
    return float(ordered[int(0.025 * (len(ordered) - 1))]), float(ordered[int(0.975 * (len(ordered) - 1))])


def linear_interval(values: Sequence[float] | npt.NDArray[np.float64]) -> tuple[float, float]:
    """np.quantile's default, which is also ours."""
    low, high = np.quantile(np.asarray(values), [0.025, 0.975])
    return float(low), float(high)
