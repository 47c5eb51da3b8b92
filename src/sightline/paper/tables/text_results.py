"""Results that the paper prints in its text and in no table: each a preset by name, with the published values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from sightline.analysis.outcomes import lexically_plausible, samples, tertiles
from sightline.core.table import TableColumn, format_value
from sightline.cost.published import DETECTOR_MS, TOTAL, TOTAL_WITH_DETECTOR
from sightline.errors import SightlineError
from sightline.paper.cost_cards import card_of, first_token
from sightline.paper.cut import AT_ZERO, SHARED, judged
from sightline.paper.models import INTERNVL, LLAVA, MODELS, QWEN
from sightline.paper.needs import Need
from sightline.paper.paper_table import PAPER_TABLES, Block, Line, Measured, PaperTable, difference, metric_heads
from sightline.paper.probe_sets import CONFIRMATION, DEVELOPMENT, GSR, GSR_SLICE
from sightline.paper.tables.shared import COUNT, counted_metrics, metrics_of
from sightline.paper.tables.table_s07 import PEOPLE, valid_images
from sightline.report.sections.image_dependence import image_dependence_frame
from sightline.report.sections.limited_probes import largest_changes
from sightline.report.sections.positions import positions_frame
from sightline.rows.images import probe_scales

if TYPE_CHECKING:
    from sightline.paper.study import Study

FROM_TEXT = "(from the text of the paper)"


# Positions.


def _policy(model: str, arm: str, method: str, comparison: str, words: str, *published: float | str | None) -> Line:
    return Line((MODELS[model].short, method, words), published, model, DEVELOPMENT, arm, about=comparison)


POLICY_LINES = (
    _policy(LLAVA, "protected:0.4", "Protected (40%)", "raw", "as answered",
            1000, "0.661 / 0.654", "0.298 / 0.362", None, 279),
    _policy(INTERNVL, "soft_evidence:0.5", "Soft evidence (50%)", "own thresholds", "own thresholds",
            536, "0.653 / 0.647", "0.328 / 0.343", "0.696 / 0.678", None),
    _policy(INTERNVL, "soft_evidence:0.5", "Soft evidence (50%)", "compact threshold", "Compact's threshold",
            536, "0.653 / 0.647", "0.328 / 0.272", None, 101),
)  # fmt: skip


def both_policies(study: Study, line: Line) -> list[Measured]:
    """Compact / preserved positions under one mask, and decisions that differ."""
    rows = study.rows(line.model, line.probes)
    found = positions_frame(rows[rows["plain_arm"] == study.arm(line.model, line.arm)])
    own = found[found["comparison"] == line.about]
    if own.empty:
        raise SightlineError("the hash split leaves one side without images; take more of them")
    record: Any = own.iloc[0]
    pairs = (
        " / ".join(format_value(record[f"{name}_{policy}"], "score") for policy in ("compact", "preserve"))
        for name in ("accuracy", "hfpr", "auroc")
    )
    return [Measured(float(record["n"])), *map(Measured, pairs), Measured(float(record["flips"]))]


@PAPER_TABLES.register("POSITIONS")
class PositionPolicy(PaperTable):
    number = "POSITIONS"
    title = f"Compact and preserved positions {FROM_TEXT}"
    about = "Development set, one mask under both policies: compact / preserve. InternVL on its held-out half."
    blocks = (
        Block(
            ("Model", "Method", "Threshold"),
            (
                COUNT,
                TableColumn("accuracy", "Acc.", "words"),
                TableColumn("hfpr", "hFPR", "words"),
                TableColumn("auroc", "AUROC", "words"),
                TableColumn("flips", "Decisions flipped", "count"),
            ),
            POLICY_LINES,
            both_policies,
            lambda line: [Need(line.model, line.probes, (line.arm, f"{line.arm}+swap_positions"))],
        ),
    )


# Plausible decoys.


def _plausible(model: str, n: int, matched: float, wrong: float) -> Line:
    probes = "development-image-free" if model == INTERNVL else "confirmation-image-free"
    cut = SHARED if model == INTERNVL else AT_ZERO
    return Line((MODELS[model].title,), (n, matched, wrong), model, probes, "full", cut=cut)


def plausible_decoys(study: Study, line: Line) -> list[Measured]:
    """Accuracy on matching and on wrong images where the decoy is a word of some other image."""
    rows = judged(study, line.model, line.probes, line.cut)
    images = lexically_plausible(study.run(line.model, line.probes).probes)
    if not images & set(rows["image_id"].astype(str)):
        raise SightlineError("no decoy is a word of another image")
    found = image_dependence_frame(rows[rows["plain_arm"] == "full"], images=images, draws=study.options.draws)
    own: Any = found.set_index("condition")
    matched, wrong = (float(own.loc[name, "accuracy"]) for name in ("matching image", "wrong images"))
    return [Measured(float(own.loc["matching image", "n"])), Measured(matched), Measured(wrong)]


@PAPER_TABLES.register("PLAUSIBLE")
class PlausibleDecoys(PaperTable):
    number = "PLAUSIBLE"
    title = f"Image dependence where the decoy is a word of another image {FROM_TEXT}"
    about = "Full at Table 1's thresholds; wrong images as the mean of three draws."
    blocks = (
        Block(
            ("Model",),
            (COUNT, TableColumn("matched", "Matched acc.", "score"), TableColumn("wrong", "Wrong image acc.", "score")),
            (
                _plausible(QWEN, 128, 0.672, 0.497),
                _plausible(LLAVA, 128, 0.609, 0.544),
                _plausible(INTERNVL, 66, 0.712, 0.480),
            ),
            plausible_decoys,
        ),
    )


# Cells and words.


def largest_cells(study: Study, line: Line) -> list[Measured]:
    """Means over the positives whose median cell is in the largest third."""
    run = study.run(line.model, line.probes)
    rows = study.rows(line.model, line.probes)
    joined: pd.DataFrame = samples(rows[rows["arm"].isin((study.arm(line.model, line.arm), "full"))], probe_scales(run))
    own = joined[tertiles(joined["median_cell_area"]) == "large"]
    if own.empty:
        raise SightlineError("all cells are of one size here")
    return [Measured(float(len(own))), *(Measured(float(own[name].astype(float).mean())) for name in ("ecr", "lpp"))]


@PAPER_TABLES.register("STRATA")
class ScaleStrata(PaperTable):
    number = "STRATA"
    title = f"Coverage where cells are large {FROM_TEXT}"
    about = "InternVL Soft evidence at 50 %, all development positives, the third with the largest cells."
    blocks = (
        Block(
            ("Model", "Stratum"),
            (COUNT, TableColumn("ecr", "ECR", "score"), TableColumn("lpp", "LPP", "score")),
            (Line(("InternVL", "largest cells"), (None, 0.769, 0.094), INTERNVL, DEVELOPMENT, "soft_evidence:0.5"),),
            largest_cells,
            lambda line: [Need(line.model, line.probes, ("full", line.arm))],
        ),
    )


# Calibration.


@PAPER_TABLES.register("CALIBRATION")
class CoverageAndCalibration(PaperTable):
    number = "CALIBRATION"
    title = f"SCOPE's calibration without saliency {FROM_TEXT}"
    about = "LLaVA on the confirmation set: expected calibration error over 15 bins, and Brier's score."
    blocks = (
        Block(
            ("Model", "Method"),
            metric_heads("ece", "brier"),
            tuple(
                Line(("LLaVA", words), published, LLAVA, CONFIRMATION, arm)
                for words, arm, published in (
                    ("SCOPE (40%)", "scope:0.4", (0.037, 0.237)),
                    ("SCOPE pure coverage (40%)", "scope:0.4:alpha=0", (0.050, 0.236)),
                )
            ),
            metrics_of("ece", "brier"),
        ),
    )


# Quality control of the development set.

QC_ARMS = {QWEN: ("full", "target:0.3"), LLAVA: ("full", "protected:0.4"), INTERNVL: ("full", "soft_evidence:0.5")}


def development_valid(study: Study, line: Line) -> list[Measured]:
    """Images that people found valid, and the largest change of hFPR over methods when the others are left out."""
    rows = study.rows(line.model, line.probes)
    arms = [study.arm(line.model, arm) for arm in QC_ARMS[line.model]]
    every = rows[rows["arm"].isin(arms)]
    kept = every[every["image_id"].astype(str).isin(valid_images(study, DEVELOPMENT))]
    if kept.empty:
        raise SightlineError("none of the images that people found valid is in the development set")
    found: Any = largest_changes(every, kept, ("hfpr",)).set_index("metric")
    return [Measured(float(kept["image_id"].nunique())), Measured(float(found.loc["hfpr", "change"]))]


@PAPER_TABLES.register("QC")
class DevelopmentQuality(PaperTable):
    number = "QC"
    title = f"Development pairs that people found valid {FROM_TEXT}"
    about = (
        "Published: 449 of 500 pairs are valid, and leaving out the others changes the hFPR of none of 17 methods by "
        "more than 0.013. Here over two methods of each model. A demonstration leaves out one image in ten by a hash."
    )
    blocks = (
        Block(
            ("Model",),
            (TableColumn("valid", "Valid pairs", "count"), TableColumn("change", "Largest change of hFPR", "signed")),
            tuple(Line((MODELS[model].title,), (449, 0.013), model, DEVELOPMENT) for model in QC_ARMS),
            development_valid,
            lambda line: [Need(line.model, line.probes, QC_ARMS[line.model])],
            requires=PEOPLE,
        ),
    )


# Answers of many tokens.

SHAPES = {QWEN: "qwen3-vl-8b", LLAVA: "llava-1.5-7b", INTERNVL: "internvl3.5-8b"}


def _diluted(model: str, arm: str, words: str, detector: bool) -> Line:
    selector, _, budget = arm.partition(":")
    printed = (TOTAL_WITH_DETECTOR if detector else TOTAL)[SHAPES[model], (selector, float(budget))]
    cells = tuple(printed.get(n) for n in (32, 128))
    return Line((words, "254.4 ms" if detector else "none"), cells, model, arm=arm, about=detector)


DILUTED = (
    _diluted(QWEN, "target:0.2", "Qwen Target (20%)", False),
    _diluted(LLAVA, "protected:0.4", "LLaVA Protected (40%)", True),
    _diluted(INTERNVL, "soft_evidence:0.5", "InternVL Soft evidence (50%)", True),
)


def time_decoding(study: Study) -> None:
    for line in DILUTED:
        if line.model in study.models:
            first_token(
                study, f"decode-{line.model}", line.model, ("full", line.arm), DETECTOR_MS if line.about else 0.0
            )


def diluted(study: Study, line: Line) -> list[Measured]:
    study.require(line.model)
    for table in card_of(study, f"decode-{line.model}").further_tables():
        for record in table.lines:
            if record["arm"] == line.arm:
                return [Measured(float(record[f"n_{n}"])) for n in (32, 128)]
    raise SightlineError(f"{line.arm} has not been timed")


@PAPER_TABLES.register("DILUTION")
class DecodeDilution(PaperTable):
    number = "DILUTION"
    title = f"What is left of a speed-up when answers are long {FROM_TEXT}"
    about = (
        "First token and n further tokens, Full's time over the arm's. The paper took one time per token for all "
        "models, from another run; here each arm's own is measured. Where boxes are read, a detector's time is added."
    )
    blocks = (
        Block(
            ("Setting", "Detector"),
            (TableColumn("n_32", "32 tokens", "ratio"), TableColumn("n_128", "128 tokens", "ratio")),
            DILUTED,
            diluted,
            lambda line: [],
            requires="a GPU for times that mean something",
            prepare=time_decoding,
        ),
    )


# Spatial relations.


def _relation(model: str, arm: str, method: str, probes: str, *published: float | None) -> Line:
    return Line((MODELS[model].short, method), published, model, probes, arm)


GSR_METRICS = ("accuracy", "hfpr", "pn_average")
GSR_LINES = (
    _relation(INTERNVL, "full", "Full", GSR_SLICE, 100, 0.710, None, None),
    _relation(INTERNVL, "grid:0.5", "Grid (50%)", GSR_SLICE, 100, 0.530, None, 0.746),
    _relation(INTERNVL, "spatial_aware:0.5:score=overlap", "Spatial-aware (50%)", GSR_SLICE, 100, 0.550, 0.680, 0.880),
    _relation(LLAVA, "full", "Full", GSR_SLICE, 100, 0.510, None, None),
    _relation(LLAVA, "grid:0.4", "Grid (40%)", GSR_SLICE, 100, 0.530, 0.900, 0.408),
    _relation(LLAVA, "spatial_aware:0.4:score=overlap", "Spatial-aware (40%)", GSR_SLICE, 100, 0.520, 0.940, 0.698),
    _relation(INTERNVL, "full", "Full", GSR, 880, 0.633, None, None),
    _relation(INTERNVL, "grid:0.5", "Grid (50%)", GSR, 880, 0.551, None, None),
    _relation(LLAVA, "full", "Full", GSR, 880, 0.535, None, None),
    _relation(LLAVA, "grid:0.4", "Grid (40%)", GSR, 880, 0.534, None, None),
)


@PAPER_TABLES.register("GSR")
class SpatialRelations(PaperTable):
    number = "GSR"
    title = f"GSR-Bench: spatial relations {FROM_TEXT}"
    about = (
        "Yes or no about right and wrong captions of two things, t = 0; evidence are both things' boxes, and coverage "
        "is that of all probes. Published hFPRs that the text does not tie to a row are left out."
    )
    blocks = (
        Block(
            ("Model", "Method"),
            (COUNT, *metric_heads(*GSR_METRICS)),
            GSR_LINES,
            counted_metrics(*GSR_METRICS),
            requires="GSR-Bench (--gsr)",
        ),
    )
    claims = tuple(
        difference(
            f"{MODELS[model].short}: Spatial-aware keeps more of the evidence than Grid.",
            model=model, probes=GSR_SLICE, arm=f"spatial_aware:{keep}:score=overlap", minus=f"grid:{keep}",
            metric="pn_average", expects="above",
        )
        for model, keep in ((INTERNVL, 0.5), (LLAVA, 0.4))
    )  # fmt: skip
