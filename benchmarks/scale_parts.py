"""What the host does around the model, measured: planning, claiming, writing rows, putting shards together.

    OMP_NUM_THREADS=1 python -m benchmarks.scale_parts [--out benchmarks/cards/host/scale-parts.json]

``benchmarks/scale_model.py`` reads the file. Rows are those of a real audit of a tiny checkpoint; the disk is the one
that holds the temporary folder.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import count
from math import inf
from pathlib import Path
from random import Random
from typing import Any

import pyarrow.parquet as pq

from sightline.answering.scorers import SCORERS
from sightline.arms.arm import parse_arm
from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.auditing.shards import SharedTasks, Task, check_images, make_shards, tasks_left
from sightline.checks.demo import asset
from sightline.probes import ProbeSet, read_probes, write_probes
from sightline.store.folder import RunFolder
from sightline.store.leases import FolderAccess

CARD = Path(__file__).parent / "cards" / "host" / "scale-parts.json"
TINY = Path(__file__).parents[1] / "tests" / "data" / "tiny" / "qwen3vl"
REPEATS = 15


@dataclass(frozen=True)
class HostParts:
    """Seconds, unless said otherwise."""

    machine: str
    plan_probe: float
    """Reading and checking one probe of a probe file."""
    plan_probe_bytes: float
    """Memory that one probe takes in every process that plans."""
    plan_image: float
    """Looking at the header of one image."""
    plan_file: float
    """Asking whether the rows of one arm and shard are there."""
    claim: float
    """Claiming a task and letting it go."""
    claim_left: float
    """What every task that is left adds to that."""
    look_file: float
    """Looking at what others have done meanwhile, for every arm and shard of the run."""
    write_file: float
    """Writing a file of rows, whatever is in it: encoded, flushed to the disk, renamed."""
    write_row: float
    """What every row adds to that."""
    row_bytes: float
    """Of the disk, per row of a large file."""
    compact_file: float
    """Reading one small file of rows back."""
    compact_row: float
    """Writing one row into a large file."""

    @classmethod
    def read(cls, path: Path = CARD) -> HostParts:
        return cls(**json.loads(path.read_text(encoding="utf-8")))


def seconds(job: Callable[[], object], repeats: int = REPEATS) -> float:
    """The best of some repetitions: others that use the machine only make it slower."""
    taken = []
    for _ in range(repeats):
        started = time.perf_counter()
        job()
        taken.append(time.perf_counter() - started)
    return min(taken)


def made_rows(place: Path) -> list[dict[str, Any]]:
    """Rows of a real run."""
    scenes = asset("scenes", "confirmation")
    settings = AuditConfig(
        model=str(TINY),
        probes=scenes / "probes.jsonl",
        images=scenes / "images",
        out=place / "run",
        arms=["target:0.3"],
        matched_controls=False,
        limit=4,
        device="cpu",
        image_options={"max_pixels": 50176},
    )
    run = audit(settings)
    files = sorted(run.path.glob("rows/*/*.parquet"))
    return [row for file in files for row in pq.read_table(file, partitioning=None).to_pylist()]


def varied(rows: Sequence[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    """So many rows like these with other ids, numbers and masks: copies of one row would take hardly any room."""
    random = Random(0)

    def other(value: Any) -> Any:
        if isinstance(value, float):
            return value + random.random()
        if isinstance(value, bytes):
            return random.randbytes(len(value))
        return value

    made = ({**rows[index % len(rows)], "probe_id": f"probe-{index}"} for index in range(number))
    return [{name: other(value) for name, value in row.items()} for row in made]


def planning(place: Path, probes: int = 20_000) -> tuple[float, float]:
    """Seconds and bytes per probe: the drawn pages' questions over and over, each under an id of its own."""
    scenes = asset("scenes", "confirmation")
    shipped = read_probes(scenes / "probes.jsonl").probes
    file = place / "many.jsonl"
    write_probes(file, [replace(shipped[number % len(shipped)], id=f"probe-{number}") for number in range(probes)])

    def plan() -> ProbeSet:
        found = read_probes(file)
        make_shards(found.probes, 64)
        return found

    taken = seconds(plan, 3)
    tracemalloc.start()
    kept = plan()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(kept.probes) == probes
    return taken / probes, held / probes


def pulling(place: Path) -> tuple[float, float, float]:
    """Seconds of a claim; what each task that is left adds; of a look at the folder, for each of its files."""
    shipped = read_probes(asset("scenes", "confirmation") / "probes.jsonl").probes
    arms = tuple(parse_arm(f"target:0.{share}") for share in range(1, 10))
    shard = make_shards(shipped, 1)[0]
    taken, looked = {}, 0.0
    for tasks in (10, 4000):
        folder = RunFolder(place / f"pulled-{tasks}")
        made = [Task(replace(shard, index=index), arms) for index in range(tasks)]
        access = FolderAccess(folder.path, timeout=60)
        pull = SharedTasks(folder, made, access)
        for arm in arms:  # half of the work is done
            folder.rows_file(arm.text, 0).parent.mkdir(parents=True)
            for index in range(0, tasks, 2):
                folder.rows_file(arm.text, index).touch()
        looked = seconds(lambda pull=pull: pull._update(at_once=True)) / (tasks * len(arms))  # type: ignore[misc]

        def take(pull: SharedTasks = pull) -> None:
            pull._next_update = inf  # timed apart
            next(pull.ready())
            pull.give_back()

        taken[tasks // 2] = seconds(take)
        access.leases.close()
    (few, short), (many, long) = taken.items()
    slope = (long - short) / (many - few)
    return short - few * slope, slope, looked


def measured(place: Path) -> HostParts:
    rows = made_rows(place)
    folder = RunFolder(place / "written")
    columns = SCORERS.get("yes_no").columns
    few, many = varied(rows, 16), varied(rows, 1024)

    def write(some: list[dict[str, Any]]) -> float:
        numbers = count()
        return seconds(lambda: folder.write_rows(f"{len(some)} rows", next(numbers), some, columns))

    short, long = write(few), write(many)
    write_row = (long - short) / (len(many) - len(few))
    plan_probe, plan_bytes = planning(place)
    claim, claim_left, look_file = pulling(place)
    scenes = asset("scenes", "confirmation")
    shards = make_shards(read_probes(scenes / "probes.jsonl").probes, 1)
    arms = [parse_arm(f"target:0.{share}") for share in range(1, 10)]
    folder.write_rows("large", 0, varied(rows, 16_384), columns)
    table = pq.read_table(folder.rows_file("large", 0), partitioning=None)
    folder.write_rows("small", 0, few, columns)
    small = folder.rows_file("small", 0)
    compacted = place / "compacted.parquet"
    look = seconds(lambda: check_images(scenes / "images", shards, decode=False), 5)
    return HostParts(
        machine=f"{platform.machine()}, Python {platform.python_version()}, one thread",
        plan_probe=plan_probe,
        plan_probe_bytes=plan_bytes,
        plan_image=look / len(shards),
        plan_file=seconds(lambda: tasks_left(folder, shards, arms)) / (len(shards) * len(arms)),
        claim=claim,
        claim_left=claim_left,
        look_file=look_file,
        write_file=short - len(few) * write_row,
        write_row=write_row,
        compact_file=seconds(lambda: pq.read_table(small, partitioning=None)),
        compact_row=seconds(lambda: pq.write_table(table, compacted, compression="zstd"), 5) / len(table),
        row_bytes=compacted.stat().st_size / len(table),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=CARD)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        parts = asdict(measured(Path(place)))
    options.out.write_text(json.dumps(parts, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(parts, indent=2))


if __name__ == "__main__":
    main()
