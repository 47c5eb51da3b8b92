"""What an audit of ten million probes under forty arms costs on 256 GPUs: from measured parts, with faults simulated.

    python -m benchmarks.scale_model [--probes 10000000] [--arms 40] [--gpus 256] [--shard-images 64]

Seconds per image and row are those of ``benchmarks/cards/h200/sweep-qwen.json`` (Qwen3-VL-8B, 784 visual tokens, twelve
arms that keep 10 to 100 % of them, compiled), the least time of an arm that of ``prefill-one.json``; what the host does
around the model is in ``benchmarks/cards/host/scale-parts.json``. How unequal workers are, how often they die and how
fast the store hands out weights are assumptions, printed with the tables.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

from benchmarks.scale_parts import HostParts
from benchmarks.simulated_workers import Cluster, Outcome, Work, simulated

from sightline.auditing.shards import SHARE

CARDS = Path(__file__).parent / "cards" / "h200"
HOUR = 3600.0
WEIGHTS_GB = 17.5
"""The checkpoint of these shapes, as docs/cost.md says."""
STORE_GB_S = 20.0
"""Assumed: what a shared file system hands out to all workers together."""
WORKER_GB_S = 2.0
"""Assumed: what one worker reads at most."""
SEEDS = (0,)
SHARD_SIZES = (32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True)
class GpuParts:
    """Seconds on one GPU."""

    image: float
    """Vision tower."""
    select: float
    """Per row, as all below."""
    materialise: float
    language: float
    between: float
    """What the sweep took beyond these."""
    least: float
    """An arm over hardly any probes: the device waits for its host."""
    start: float
    """Imports, model; without reading weights."""
    set_up: float
    """Compiling and rehearsing."""

    @property
    def row(self) -> float:
        return self.select + self.materialise + self.language + self.between

    @classmethod
    def read(cls, cards: Path = CARDS) -> GpuParts:
        result = json.loads((cards / "sweep-qwen.json").read_text(encoding="utf-8"))["results"][0]
        (point,) = result["points"]
        spent = {stage: sum(samples) / 1e3 for stage, samples in point["samples_ms"].items()}
        rows, images = point["extra"]["rows"], result["request"]["images"]
        parts = {stage: spent[stage] / rows for stage in ("select", "materialise", "language")}
        between = (spent["engine"] - sum(spent[stage] for stage in ("vision", *parts))) / rows
        return cls(
            image=spent["vision"] / images,
            **parts,
            between=between,
            least=_least(cards),
            start=result["start_ms"] / 1e3,
            set_up=sum(point["setup_ms"]) / 1e3,
        )


def _least(cards: Path) -> float:
    """The shortest eager prefill that was timed."""
    results = json.loads((cards / "prefill-one.json").read_text(encoding="utf-8"))["results"]
    eager = (result for result in results if result["request"]["execution"] == "eager")
    return float(min(min(point["samples_ms"]["prefill"]) for result in eager for point in result["points"])) / 1e3


@dataclass(frozen=True)
class Audit:
    """What is audited, and how it is cut."""

    probes: int = 10_000_000
    images: int = 5_000_000
    views: Sequence[int] = (30, 10)
    """Arms that see the images as they are, and arms that see another version of them: tasks of two lengths."""
    shard_images: int = 64
    folders: int = 1
    """Run folders that the probes are divided over, each with its share of the workers."""

    @property
    def arms(self) -> int:
        return sum(self.views)

    @property
    def rows(self) -> int:
        return self.probes * self.arms

    @property
    def shards(self) -> int:
        return math.ceil(self.images / self.shard_images)

    @property
    def shards_each(self) -> int:
        """Of one folder."""
        return math.ceil(self.shards / self.folders)

    @property
    def files(self) -> int:
        return self.shards * self.arms


@dataclass(frozen=True)
class Model:
    """Measured parts put together."""

    gpu: GpuParts
    host: HostParts

    def work(self, audit: Audit) -> Iterator[Work]:
        """Every task of one of the folders, in order."""
        tasks = [self.task(audit, arms) for arms in audit.views]
        for shard in range(audit.shards_each):
            yield from (replace(task, shard=shard) for task in tasks)

    def task(self, audit: Audit, arms: int) -> Work:
        """A shard under the arms that see one version of its images."""
        rows = audit.shard_images * audit.probes / audit.images
        encode = self.host.write_file + audit.shard_images * self.gpu.image
        answer = max(self.gpu.least, rows * self.gpu.row)
        work = Work(encode, arms, answer + self.host.write_file + rows * self.host.write_row)
        return replace(work, encode=encode + self.pulling(audit, work.seconds))

    def pulling(self, audit: Audit, seconds: float) -> float:
        """What claiming one task of so many seconds takes, with half of all left, and looking at what others did."""
        left = audit.shards_each * len(audit.views) / 2
        look = audit.shards_each * audit.arms * self.host.look_file
        return self.host.claim + left * self.host.claim_left + min(look, SHARE * seconds)

    def planning(self, audit: Audit) -> float:
        """Before a model is loaded: every probe read, every image's header looked at, every file looked for."""
        host = self.host
        whole = audit.probes * host.plan_probe + audit.images * host.plan_image + audit.files * host.plan_file
        return whole / audit.folders

    def cluster(self, gpus: int) -> Cluster:
        """Equal workers that never die."""
        prepared = self.gpu.start + self.gpu.set_up
        alone = WEIGHTS_GB / WORKER_GB_S
        return Cluster(
            workers=gpus,
            start=prepared + alone,
            first_start=prepared + max(alone, gpus * WEIGHTS_GB / STORE_GB_S),
            restart=60.0,
            timeout=60.0,
        )

    def compaction(self, audit: Audit) -> float:
        """Every file read once, every row written once more, by one process."""
        return audit.files * self.host.compact_file + audit.rows * self.host.compact_row


FAULTS = {
    "equal workers, no faults": (0.0, math.inf),
    "10 % spread, no faults": (0.1, math.inf),
    "10 % spread, a worker lives 24 h": (0.1, 24 * HOUR),
    "30 % spread, a worker lives 24 h": (0.3, 24 * HOUR),
    "30 % spread, a worker lives 2 h": (0.3, 2 * HOUR),
}
"""Spread and mean lifetime: assumptions, from a machine room on a good day to machines that are taken away all the
time."""
ORDINARY, HARSH = "10 % spread, a worker lives 24 h", "30 % spread, a worker lives 2 h"


def suffering(cluster: Cluster, faults: str) -> Cluster:
    spread, lifetime = FAULTS[faults]
    return replace(cluster, spread=spread, lifetime=lifetime)


def outcomes(cluster: Cluster, work: Iterable[Work], seeds: Iterable[int] = SEEDS) -> list[Outcome]:
    tasks = list(work)
    return [simulated(cluster, tasks, seed) for seed in seeds]


def percent(found: Sequence[Outcome], part: str) -> str:
    return f"{100 * mean(each.share(getattr(each, part)) for each in found):.2f} %"


def markdown(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table as the documentation has it."""
    return "\n".join("| " + " | ".join(line) + " |" for line in (head, ["---"] * len(head), *lines)) + "\n"


def parts_table(model: Model, audit: Audit, gpus: int) -> str:
    """Where the time of an undisturbed audit goes."""
    gpu, host, cluster = model.gpu, model.host, model.cluster(gpus)
    tasks = audit.shards * len(audit.views)
    bare = replace(model, host=replace(model.host, claim=0.0, claim_left=0.0, look_file=0.0))
    pulled = sum(each.seconds for each in model.work(audit)) - sum(each.seconds for each in bare.work(audit))
    lines = [
        ("encode", f"{1e3 * gpu.image:.1f} ms an image and version", audit.images * len(audit.views) * gpu.image),
        ("select", f"{1e3 * gpu.select:.2f} ms a row", audit.rows * gpu.select),
        ("materialise", f"{1e3 * gpu.materialise:.2f} ms a row", audit.rows * gpu.materialise),
        ("language model", f"{1e3 * gpu.language:.2f} ms a row", audit.rows * gpu.language),
        ("host in between", f"{1e3 * gpu.between:.2f} ms a row", audit.rows * gpu.between),
        (
            "write",
            f"{1e3 * host.write_file:.1f} ms a file, {1e6 * host.write_row:.1f} us a row",
            (audit.files + tasks) * host.write_file + audit.rows * host.write_row,
        ),
        ("pull", f"{tasks:,} tasks, {pulled / tasks:.2f} s each", pulled),
        ("start all workers", f"{cluster.first_start or 0.0:.0f} s a worker", gpus * (cluster.first_start or 0.0)),
    ]
    total = sum(seconds for *_, seconds in lines)
    return markdown(
        ("part", "measured", "GPU hours", "share"),
        [(name, unit, f"{seconds / HOUR:,.1f}", f"{100 * seconds / total:.2f} %") for name, unit, seconds in lines]
        + [("**sum**", "", f"**{total / HOUR:,.1f}**", "")],
    )


def faults_table(model: Model, audit: Audit, gpus: int) -> str:
    """Pulling longest first against a static split, from good days to bad ones."""
    work, lines = list(model.work(audit)), []
    for name in FAULTS:
        for pulls in (True, False):
            found = outcomes(replace(suffering(model.cluster(gpus), name), pulls=pulls), work)
            lines.append((name if pulls else "", "pulled" if pulls else "static split", *described(found)))
    return markdown(("workers", "tasks are", *DESCRIBED), lines)


DESCRIBED = ("wall time", "GPU hours", "lost with workers", "starting", "waiting", "deaths")


def described(found: Sequence[Outcome]) -> list[str]:
    return [
        f"{mean(each.wall for each in found) / HOUR:.2f} h",
        f"{mean(each.total for each in found) / HOUR:,.0f}",
        *(percent(found, part) for part in ("lost", "starting", "waiting")),
        f"{mean(each.deaths for each in found):.0f}",
    ]


def shards_table(model: Model, audit: Audit, gpus: int) -> str:
    """How large a shard should be."""
    lines = []
    for size in SHARD_SIZES:
        cut = replace(audit, shard_images=size)
        work = list(model.work(cut))
        overhead = sum(task.seconds for task in work) / (
            cut.rows * model.gpu.row + cut.images * len(cut.views) * model.gpu.image
        )
        cells = [str(size), f"{work[0].seconds:.0f} s", f"{cut.files:,}", f"{100 * (overhead - 1):.1f} %"]
        for name in (ORDINARY, HARSH):
            found = outcomes(suffering(model.cluster(gpus), name), work)
            cells += [percent(found, "lost"), f"{mean(each.wall for each in found) / HOUR:.2f} h"]
        lines.append([*cells, f"{model.compaction(cut) / HOUR:.1f} h"])
    head = ("images a shard", "longest task", "files", "overhead", "lost (24 h)", "wall (24 h)", "lost (2 h)")
    return markdown((*head, "wall (2 h)", "compaction, one process"), lines)


def folders_table(model: Model, audit: Audit, gpus: int) -> str:
    """One folder for all workers, or some folders of fewer probes."""
    lines = []
    for folders in (number for number in (1, 4, 16, 32) if number <= gpus):
        cut = replace(audit, folders=folders)
        cluster = replace(model.cluster(gpus // folders), first_start=model.cluster(gpus).first_start)
        work = list(model.work(cut))
        found = [simulated(suffering(cluster, ORDINARY), work, seed) for seed in range(folders)]
        slowest, planning = max(each.wall for each in found), model.planning(cut)
        gib = cut.probes / folders * model.host.plan_probe_bytes / 2**30
        wall = planning + slowest
        cells = (f"{planning / 60:.0f} min", f"{gib:.1f} GiB", f"{slowest / HOUR:.2f} h", f"{wall / HOUR:.2f} h")
        lines.append((str(folders), str(gpus // folders), *cells))
    head = ("run folders", "GPUs each", "planning", "memory of a plan", "slowest folder", "both")
    return markdown(head, lines)


def gpus_table(model: Model, audit: Audit) -> str:
    """More GPUs."""
    lines, work = [], list(model.work(audit))
    for gpus in (8, 32, 64, 128, 256, 512, 1024):
        found = outcomes(suffering(model.cluster(gpus), ORDINARY), work)
        lines.append((str(gpus), *described(found)))
    return markdown(("GPUs", *DESCRIBED), lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--probes", type=int, default=Audit.probes)
    parser.add_argument("--images", type=int, help="half as many as probes unless said")
    parser.add_argument("--views", type=int, nargs="+", default=Audit.views, help="arms per version of the images")
    parser.add_argument("--gpus", type=int, default=256)
    parser.add_argument("--shard-images", type=int, default=Audit.shard_images)
    options = parser.parse_args()
    images = options.images or options.probes // 2
    audit = Audit(options.probes, images, tuple(options.views), options.shard_images)
    model = Model(GpuParts.read(), HostParts.read())
    print(
        f"{audit.probes:,} probes on {audit.images:,} images, {audit.arms} arms ({audit.views}), {audit.rows:,} rows, "
        f"{audit.shard_images} images a shard, {options.gpus} GPUs; weights {WEIGHTS_GB} GB, store {STORE_GB_S} GB/s\n"
    )
    print(parts_table(model, audit, options.gpus))
    print(faults_table(model, audit, options.gpus))
    print(shards_table(model, audit, options.gpus))
    print(folders_table(model, audit, options.gpus))
    print(gpus_table(model, audit))


if __name__ == "__main__":
    main()
