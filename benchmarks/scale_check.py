"""The simulation beside real runs: one, two and four workers of ``--launcher local`` on this machine, a thread each.

    python -m benchmarks.scale_check [--images 96]

Two runs with one worker, over a quarter and a half of the images, say how long a worker takes to start and how long a
shard takes it. From these alone the simulation predicts one, two and four workers over all images, which are then run.
More workers than cores share them: starting and working are predicted to take so many times longer.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.scale_model import markdown
from benchmarks.simulated_workers import Cluster, Work, simulated

from sightline.checks.demo import asset
from sightline.rows.run import load_run

TINY = Path(__file__).parents[1] / "tests" / "data" / "tiny" / "qwen3vl"
ARMS = ("full", "target:0.3", "random:0.3", "grid:0.3")
SHARD = 2
"""Images"""


def seconds(images: int, workers: int, place: Path) -> float:
    """A whole command, from its start to its end."""
    scenes, out = asset("scenes", "confirmation"), place / f"{images}-{workers}"
    words = ["--model", TINY, "--probes", scenes / "probes.jsonl", "--images", scenes / "images", "--out", out]
    words += ["--limit", images, "--shard-images", SHARD, "--device", "cpu", "--dtype", "float32"]
    words += ["--no-matched-controls", "--launcher", "local", "--workers", workers]
    words += [word for arm in ARMS for word in ("--arm", arm)]
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "sightline", "run", *map(str, words)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
    )
    taken = time.perf_counter() - started
    assert load_run(out).missing == 0
    return taken


def predicted(images: int, workers: int, cores: int, start: float, shard: float) -> float:
    slower = max(1.0, workers / cores)
    work = [Work(0.0, len(ARMS), slower * shard / len(ARMS), number) for number in range(images // SHARD)]
    return simulated(Cluster(workers, start=slower * start), work).wall


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=96)
    options = parser.parse_args()
    cores = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        quarter, half = (options.images // part // SHARD * SHARD for part in (4, 2))
        short, long = seconds(quarter, 1, place), seconds(half, 1, place)
        shard = (long - short) / ((half - quarter) / SHARD)
        start = short - shard * quarter / SHARD
        print(f"{cores} cores; a worker starts in {start:.1f} s and takes {shard:.2f} s for a shard\n")
        lines = []
        for workers in (1, 2, 4):
            model = predicted(options.images, workers, cores, start, shard)
            real = seconds(options.images, workers, place)
            lines.append((str(workers), f"{model:.1f} s", f"{real:.1f} s", f"{real / model:.2f}"))
    print(markdown(("workers", "predicted", "measured", "measured / predicted"), lines))


if __name__ == "__main__":
    main()
