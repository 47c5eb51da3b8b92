"""The demonstration: the shipped reader on shipped pages, yes or no and in words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from PIL import Image

from sightline.errors import SightlineError

if TYPE_CHECKING:
    import pandas as pd

    from sightline.rows.run import Run


# The demo: the shipped reader audited on the shipped confirmation scenes, on a laptop's CPU, without a network.

ARMS = (
    "full", "target:0.3", "target_grid:0.3", "random:0.3", "grid:0.3", "shuffled:0.3", "protected:0.3",
    "soft_evidence:0.3",
)  # fmt: skip
PICTURE = "right-without-evidence.png"
IMAGES = 40
"""Unless all are asked for: a report within a minute of two cores, and enough for intervals that say something."""
SHARD_IMAGES = 15
"""Small enough that the bar moves every few seconds, large enough to batch."""


@dataclass(frozen=True)
class Demo:
    run: Run
    summary: pd.DataFrame
    """``arm_summary`` of the run: one line per arm, the demo's metrics with their 95 % intervals."""
    report: Path
    picture: Path | None
    """The unsupported answer with the largest margin; None if there is none."""


def asset(*parts: str) -> Path:
    """A file or folder shipped with the package."""
    path = Path(str(files("sightline"))).joinpath("assets", *parts)
    if not path.exists():
        raise SightlineError(
            f"{path} is missing; a wheel leaves out the second reader and the development scenes: take them from a "
            "checkout of the repository, or reinstall sightline if it is something else"
        )
    return path


def run_demo(out: Path, *, limit: int | None = IMAGES, draws: int = 10_000, cases: int = 40) -> Demo:
    """Audits ``ARMS`` into ``out/run`` (or resumes there) and writes ``out/report.html`` and one picture.

    ``limit`` audits only the first so many images, None all; any other than ``IMAGES`` has a folder of its own.
    """
    from sightline.statistics.metrics import metrics_shown_in
    from sightline.statistics.summaries import arm_summary

    scenes = asset("scenes", "confirmation")
    run = audit_pages(
        out / "run", ARMS, limit, probes=scenes / "probes.jsonl", images=scenes / "images", shard_images=SHARD_IMAGES
    )
    # Imported late: what a report lacks shall not cost the run.
    from sightline.report.build import build_report

    shown = [metric.name for metric in metrics_shown_in("demo")]
    summary = arm_summary(run.frame(), metrics=shown, draws=draws)
    return Demo(run, summary, build_report([run.path], out, cases=cases, draws=draws), save_picture(run, out / PICTURE))


def audit_pages(out: Path, arms: Sequence[str], limit: int | None, most: int | None = None, **settings: Any) -> Run:
    """The shipped reader on shipped pages, into ``out`` or, where not as many as usual, a folder that says so.

    Without a ``limit`` it is ``most`` of them, where that is not all.
    """
    from sightline.auditing.audit import audit
    from sightline.auditing.config import read_config

    folder = out if limit == IMAGES else out.with_name(f"{out.name}-{'all' if limit is None else limit}-images")
    limits = [count for count in (limit, most) if count is not None]
    own = {"model": str(asset("reader")), "out": folder, "arms": list(arms), "dtype": "float32"}
    return audit(read_config(None, {**own, **settings, "limit": min(limits, default=None)}))


def save_picture(run: Run, path: Path) -> Path | None:
    """What the pruned prefix saw of the surest unsupported answer."""
    from sightline.report.hero import overlay
    from sightline.statistics.arm_rows import plain_rows
    from sightline.statistics.correct_positives import unsupported_rows
    from sightline.store.shard_files import unpack_cells, unpack_mask

    rows = plain_rows(run.frame())
    unsupported = rows[unsupported_rows(rows)]
    if unsupported.empty:
        return None
    row = unsupported.sort_values("margin").iloc[-1]
    record = next(record for record in run.images.to_pylist() if record["image_key"] == row["image_key"])
    regions = next(probe["regions"] for probe in run.probes if probe["id"] == row["probe_id"])
    cells = unpack_cells(record["cells"])
    image = Image.open(asset("scenes", "confirmation", "images") / record["image"])
    overlay(image, cells, unpack_mask(row["kept_mask"], len(cells)), regions).save(path)
    return path


# The demo's second half: what the shipped reader says to open questions, and what becomes of it with the evidence.

OPEN_ARMS = (
    "full", "target:0.3", "target_grid:0.3", "random:0.3", "grid:0.3", "anti_evidence:0.3",
    "policy:evidence_saturation:target:0.3/0.7",
)  # fmt: skip
METRICS = ("score", "pos_ecr", "worst_region", "unsupported")
MOST_OPEN_IMAGES = 50
"""Of the shipped ones, each with two questions: enough for intervals, few enough for a laptop's patience."""
OPEN_SHARD_IMAGES = 10
ANSWER = "answer_value"
"""The role of the region where an answer stands."""
LOST, SURVIVED = "answer-lost-with-its-evidence.png", "answer-without-its-evidence.png"


@dataclass(frozen=True)
class OpenDemo:
    run: Run
    summary: pd.DataFrame
    """``arm_summary`` of the run: one line per arm, ``METRICS`` with their 95 % intervals."""
    report: Path
    lost: Path | None
    """Full is right, an arm without a cell of the answer is not; None if there is no such answer."""
    survived: Path | None
    """An arm without a cell of the answer is right all the same; None if there is no such answer."""


def run_open_demo(out: Path, *, limit: int | None = IMAGES, draws: int = 10_000, cases: int = 40) -> OpenDemo | None:
    """Audits ``ARMS`` on the shipped open questions into ``out/open-run`` and writes report and pictures beside it.

    ``limit`` as in ``run_demo``, but all are ``MOST_OPEN_IMAGES``. None: no open questions are shipped.
    """
    from sightline.report.build import build_report
    from sightline.statistics.summaries import arm_summary

    scenes = asset("scenes", "confirmation")
    probes, images = scenes / "open_probes.jsonl", scenes / "open_images"
    if not probes.exists():
        return None
    settings = {"probes": probes, "images": images, "shard_images": OPEN_SHARD_IMAGES, "matched_controls": False}
    # Boxes are for the oracle alone: no other arm looks at them.
    run = audit_pages(out / "open-run", OPEN_ARMS, limit, MOST_OPEN_IMAGES, **settings, box_source="gt")
    summary = arm_summary(run.frame(), metrics=METRICS, draws=draws)
    report = build_report([run.path], out / "open-answers", cases=cases, draws=draws)
    lost, survived = answers_without_evidence(run)
    return OpenDemo(
        run, summary, report, save_pair(run, lost, images, out / LOST), save_pair(run, survived, images, out / SURVIVED)
    )


def answers_without_evidence(run: Run) -> tuple[pd.Series | None, pd.Series | None]:
    """The two rows that are worth a picture: an answer that went with its evidence, and one that did not need it.

    Of neither is one cell left of the region where the answer stands, and Full answers both right. Lost is the one
    whose loss rose most against Full's, survived the right one with the smallest loss. Box-free arms come first,
    oracles only where those have none.
    """
    from sightline.statistics.arm_rows import plain_rows
    from sightline.statistics.correct_positives import has_no_evidence

    frame = run.frame()
    rows = plain_rows(frame.assign(left=coverage_of_answers(run)))
    full = rows[(rows["selector"] == "full") & rows["correct"]].set_index("probe_id")["answer_loss"]
    gone = rows[has_no_evidence(rows["left"]) & rows["probe_id"].isin(full.index) & (rows["selector"] != "full")]
    gone = gone.assign(
        rise=gone["answer_loss"] - gone["probe_id"].map(full).astype(float), oracle=gone["regime"] == "oracle"
    )
    wrong = gone[~gone["correct"]].sort_values(["oracle", "rise"], ascending=[True, False], kind="stable")
    right = gone[gone["correct"]].sort_values(["oracle", "answer_loss"], kind="stable")
    return (None if wrong.empty else wrong.iloc[0]), (None if right.empty else right.iloc[0])


def coverage_of_answers(run: Run) -> list[float]:
    """Per row of the run what is covered of the regions where the answer stands; of all regions where none is so."""
    from sightline.rows.picture import stored_geometry

    regions = {}
    for probe in run.probes:
        named = zip(probe["regions"], probe.get("roles") or (), strict=False)
        regions[str(probe["id"])] = [box for box, role in named if role == ANSWER] or probe["regions"]
    return [math.nan if found is None else found.ecr for found in stored_geometry(run.rows, run.images, regions)]


def save_pair(run: Run, row: pd.Series | None, images: Path, path: Path) -> Path | None:
    """Full and the row's arm side by side, with what each said, what is accepted, and the regions with their roles."""
    if row is None:
        path.unlink(missing_ok=True)
        return None
    run.picture(str(row["probe_id"]), "full", str(row["arm"]), images=images).save(path)
    return path
