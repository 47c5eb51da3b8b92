"""Rows of every launcher, on every tiny checkpoint, with one, two and three workers, beside those of ``inline``.

python -m benchmarks.launchers [--launchers local,queue,ray] [--workers 1,2,3] [--images 6] [--device cpu]
python -m benchmarks.launchers --scaling [--images 40] [--rounds 3]
python -m benchmarks.launchers --threads [--images 6]

The first prints how many rows there are and how many of them differ in anything but times. The second prints how many
times as fast two workers write rows as one does, one thread each, from the first file to the last: loading is left out.
The third prints whether rows depend on how many threads PyTorch has.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from tests.launching import facts_of, finish, row_files, running, start

DATA = Path(__file__).parents[1] / "tests" / "data"
MODELS: dict[str, dict[str, Any]] = {
    "qwen3vl": {"max_pixels": 100352},
    "llava": {},
    "internvl": {"max_tiles": 2},
}
ARMS = ["full", "target:0.3", "random:0.3", "fastv:0.5"]


def config_for(model: str, out: Path, images: int, **changes: Any) -> AuditConfig:
    settings: dict[str, Any] = {
        "model": str(DATA / "tiny" / model),
        "probes": DATA / "golden_e2e" / "inputs" / "probes_dev.jsonl",
        "images": DATA / "mini_textocr",
        "image_prefix": "mini_textocr",
        "out": out,
        "arms": ARMS,
        "interventions": ["occlusion"],
        "device": "cpu",
        "dtype": "float32",
        "limit": images,
        "shard_images": 1,
        "threads": 1,
        "image_options": MODELS[model],
        **changes,
    }
    return AuditConfig(**settings)


def run_with(launcher: str, workers: int, model: str, out: Path, images: int, device: str = "cpu") -> None:
    """One whole run, however it is launched."""
    if launcher == "queue":
        processes = [start(config_for(model, out, images, device=device, launcher="queue")) for _ in range(workers)]
        with running(*processes):
            for process in processes:
                finish(process)
    elif launcher == "inline":
        audit(config_for(model, out, images, device=device))
    else:
        audit(config_for(model, out, images, device=device, launcher=launcher, workers=workers))


def compare(launchers: list[str], counts: list[int], images: int, device: str) -> Table:
    title = f"against inline, times aside, on {device}"
    table = Table("checkpoint", "launcher", "workers", "rows", "rows that differ", title=title)
    for model in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            run_with("inline", 1, model, Path(folder, "inline"), images, device)
            expected = facts_of(Path(folder, "inline"))
            table.add_row(model, "inline", "1", str(len(expected)), "-")
            for launcher in launchers:
                for workers in counts:
                    out = Path(folder, f"{launcher}{workers}")
                    run_with(launcher, workers, model, out, images, device)
                    found = facts_of(out)
                    unequal = differing(found, expected)
                    table.add_row(model, launcher, str(workers), str(len(found)), str(unequal))
                    print(f"{model}, {launcher}, workers: {workers}: {unequal} of {len(found)} rows differ", flush=True)
    return table


def differing(found: pa.Table, expected: pa.Table) -> int:
    """Rows of either that the other does not have at the same place."""
    # As text: a missing value does not equal itself.
    pairs = zip_longest(map(repr, found.to_pylist()), map(repr, expected.to_pylist()))
    return sum(one != other for one, other in pairs)


def rate_of(out: Path) -> float:
    """Rows per second between the first file and the last."""
    written = sorted((file.stat().st_mtime, pq.read_metadata(file).num_rows) for file in row_files(out))
    return float(sum(rows for _, rows in written[1:]) / (written[-1][0] - written[0][0]))


def scaling(images: int, rounds: int) -> Table:
    title = f"rows per second, one thread each, {os.cpu_count()} cores, median of {rounds}"
    table = Table("checkpoint", "1 worker", "2 workers", "ratio", title=title)
    for model in MODELS:
        rates: dict[int, list[float]] = {1: [], 2: []}
        with tempfile.TemporaryDirectory() as folder:
            for turn in range(rounds):
                for workers in rates:
                    out = Path(folder, f"{turn}-{workers}")
                    run_with("local", workers, model, out, images)
                    rates[workers].append(rate_of(out))
        ratio = statistics.median(two / one for one, two in zip(rates[1], rates[2], strict=True))
        one, two = (statistics.median(rates[workers]) for workers in rates)
        table.add_row(model, f"{one:.1f}", f"{two:.1f}", f"{ratio:.2f}")
    return table


def threads(images: int) -> Table:
    counts = (1, 2, 3, 4)
    table = Table("checkpoint", *(f"{n} threads" for n in counts), title="rows that differ from those with one thread")
    for model in MODELS:
        with tempfile.TemporaryDirectory() as folder:
            found = []
            for count in counts:
                audit(config_for(model, Path(folder, str(count)), images, threads=count))
                found.append(facts_of(Path(folder, str(count))))
        differ = [differing(rows, found[0]) for rows in found]
        table.add_row(model, *(f"{number} of {len(found[0])}" for number in differ))
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--launchers", default="local,queue,ray")
    parser.add_argument("--workers", default="1,2,3")
    parser.add_argument("--images", type=int)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--threads", action="store_true")
    options = parser.parse_args()
    if options.scaling:
        table = scaling(options.images or 40, options.rounds)
    elif options.threads:
        table = threads(options.images or 6)
    else:
        counts = [int(count) for count in options.workers.split(",")]
        table = compare(options.launchers.split(","), counts, options.images or 6, options.device)
    Console().print(table)


if __name__ == "__main__":
    main()
