"""How long the statistics take at the size of a paper: 500 images, two probes each, 10,000 draws.

    OMP_NUM_THREADS=1 python benchmarks/bootstrap.py

Prints the best of five runs beside what the public reference implementation takes for the same job on a two-core CPU
machine with one thread. Its figures are of another day on a noisy machine: read the order of magnitude.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pandas as pd

from sightline.statistics.arm_rows import ArmRows
from sightline.statistics.bootstrap import difference_interval
from sightline.statistics.correlation import spearman_intervals
from sightline.statistics.metrics import METRICS
from sightline.statistics.summaries import arm_summary, paired_differences
from sightline.statistics.thresholds import accuracy_optimal

IMAGES = 500


def arms(count: int) -> list[ArmRows]:
    rng = np.random.default_rng(0)
    labels = np.tile([True, False], IMAGES)
    images = np.repeat([f"{i:05d}" for i in range(IMAGES)], 2)
    return [
        ArmRows.of(labels, rng.normal(size=len(labels)) + labels, images, ecr=rng.random(len(labels)))
        for _ in range(count)
    ]


def frame(count: int) -> pd.DataFrame:
    rng = np.random.default_rng(1)
    n = 2 * IMAGES
    labels = np.tile(["yes", "no"], IMAGES)
    geometry = ("ecr", "anchor_ecr", "center_recall", "patch_recall", "lpp", "geo_f1", "worst_region")
    parts = [
        pd.DataFrame(
            {
                "arm": "full" if index == 0 else f"arm{index}",
                "probe_id": [f"p{i:05d}" for i in range(n)],
                "image_id": np.repeat([f"{i:05d}" for i in range(IMAGES)], 2),
                "label": labels,
                "margin": rng.normal(size=n) + (labels == "yes"),
                "keep": 0.3,
                "has_regions": True,
                "all_half": rng.random(n) < 0.5,
                **{name: rng.random(n) for name in geometry},
            }
        )
        for index in range(count)
    ]
    return pd.concat(parts, ignore_index=True)


def best_of_five(job: Callable[[], object]) -> float:
    times = []
    for _ in range(5):
        start = time.perf_counter()
        job()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    left, right = arms(2)
    rng = np.random.default_rng(2)
    x, y, *controls = rng.normal(size=(5, IMAGES))
    predictors = {f"x{i}": rng.normal(size=IMAGES) for i in range(3)}
    outcomes = {f"y{i}": rng.normal(size=IMAGES) for i in range(5)}
    run = frame(10)
    big_labels = rng.random(100_000) < 0.5
    big_margins = rng.normal(size=100_000) + big_labels
    jobs: list[tuple[str, Callable[[], object], str]] = [
        (
            "paired accuracy difference, 10,000 draws",
            lambda: difference_interval(left, right, METRICS["accuracy"]),
            "1.6",
        ),
        ("paired PosECR difference, 10,000 draws", lambda: difference_interval(left, right, METRICS["pos_ecr"]), "1.6"),
        (
            "AUROC difference, 2,000 draws (reference: one AUROC)",
            lambda: difference_interval(left, right, METRICS["auroc"], draws=2000),
            "1.8",
        ),
        ("AUROC difference, 10,000 draws", lambda: difference_interval(left, right, METRICS["auroc"]), "-"),
        (
            "partial Spearman, 3 controls, refitted in 10,000 draws",
            lambda: spearman_intervals({"x": x}, {"y": y}, controls),
            "14.7",
        ),
        (
            "15 partial Spearmans of 8 columns, 10,000 draws",
            lambda: spearman_intervals(predictors, outcomes, controls),
            "14.7 x 15",
        ),
        (f"all {len(list(METRICS))} metrics of 10 arms, 10,000 draws", lambda: arm_summary(run), "-"),
        (f"all {len(list(METRICS))} differences of 9 arms, 10,000 draws", lambda: paired_differences(run), "5.2 x 9"),
        ("accuracy-optimal threshold of 100,000 rows", lambda: accuracy_optimal(big_labels, big_margins), "-"),
    ]
    print(f"{'job':58} {'seconds':>8}  reference")
    for name, job, reference in jobs:
        print(f"{name:58} {best_of_five(job):8.3f}  {reference}")


if __name__ == "__main__":
    main()
