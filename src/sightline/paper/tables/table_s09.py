"""Table S9: is coverage associated with what graying or deleting the evidence does?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pandas as pd

from sightline.analysis.outcomes import samples
from sightline.core.table import TableColumn
from sightline.errors import SightlineError
from sightline.paper.models import INTERNVL, LLAVA, MODELS, QWEN
from sightline.paper.needs import Need
from sightline.paper.paper_table import (
    MARGINS,
    PAPER_TABLES,
    Block,
    Claim,
    Judgement,
    Line,
    Measured,
    PaperTable,
    Side,
    interval_words,
    judgement,
)
from sightline.paper.probe_sets import DEVELOPMENT, OCCLUDED
from sightline.report.sections.validity import correlations
from sightline.rows.images import probe_scales

if TYPE_CHECKING:
    from sightline.paper.study import Study

GRAYED = ("full+occlude_evidence", "full+occlude_random")
OCCLUSION, DELETION = "occlusion_specific_drop", "deletion_drop"
MEANS = ("ecr", "lpp", "geo_f1")


def _line(model: str, arm: str, deletes: bool, *published: float | tuple[float, float, float] | None) -> Line:
    cells = tuple(Measured(*cell) if isinstance(cell, tuple) else cell for cell in published)
    return Line((MODELS[model].title,), cells, model, DEVELOPMENT, arm, about=deletes)


LINES = (
    _line(
        QWEN, "target:0.3", True, 500, 0.651, 0.205, 0.295, 100,
        (0.334, 0.138, 0.511), (0.102, -0.082, 0.285), (0.308, 0.227, 0.389), (0.288, 0.203, 0.371),
    ),
    _line(
        LLAVA, "target:0.4", False, 500, 0.458, 0.112, 0.171, 50,
        (0.270, -0.012, 0.519), (0.275, -0.025, 0.535), None, None,
    ),
    _line(
        INTERNVL, "soft_evidence:0.5", True, 500, 0.916, 0.166, 0.255, 50,
        (0.158, -0.147, 0.434), (0.159, -0.119, 0.414), (0.029, -0.058, 0.112), (0.011, -0.075, 0.096),
    ),
)  # fmt: skip


def validity(study: Study, line: Line) -> list[Measured]:
    """Means over positives, then Spearman and partial Spearman of ECR with the two drops."""
    joined: pd.DataFrame = study.remembered(("samples", line.model), lambda: _joined(study, line))
    own = joined[joined["arm"] == study.arm(line.model, line.arm)]
    if own.empty:
        raise SightlineError(f"{line.arm} has not been measured")
    found = study.remembered(("correlations", line.model), lambda: correlations(own, draws=study.options.draws))
    means = [Measured(float(own[name].astype(float).mean())) for name in MEANS]
    occluded = int(own[OCCLUSION].notna().sum())
    cells = [_cell(found, OCCLUSION, kind) for kind in ("spearman", "partial_spearman")]
    deleted = [_cell(found, DELETION, kind) for kind in ("spearman", "partial_spearman")]
    nothing = [Measured(None)] * 2
    return [Measured(float(len(own))), *means, Measured(float(occluded)), *cells, *(deleted if line.about else nothing)]


def _joined(study: Study, line: Line) -> pd.DataFrame:
    """The arm's rows with their deletions, and Full on the images that were grayed."""
    run = study.run(line.model, DEVELOPMENT)
    rows = study.rows(line.model, DEVELOPMENT)
    plain = study.arm(line.model, line.arm)
    own = rows[(rows["plain_arm"] == plain) | (rows["arm"] == "full")]
    grayed = study.rows(line.model, OCCLUDED[line.model])
    both = pd.concat([own, grayed[grayed["arm"].isin(GRAYED)]], ignore_index=True)
    return samples(both, probe_scales(run))


def _cell(found: Any, outcome: str, correlation: str) -> Measured:
    chosen = found[
        (found["outcome"] == outcome) & (found["predictor"] == "ecr") & (found["correlation"] == correlation)
    ]
    if chosen.empty:
        return Measured("too few")
    line = chosen.iloc[0]
    return Measured(float(line["estimate"]), float(line["estimate_low"]), float(line["estimate_high"]))


def needs(line: Line) -> list[Need]:
    arms = ("full", line.arm, *((f"{line.arm}+remove_evidence",) if line.about else ()))
    return [Need(line.model, DEVELOPMENT, arms), Need(line.model, OCCLUDED[line.model], ("full", *GRAYED))]


def _association(sentence: str, model: str, cell: int, expects: Side = "above") -> Claim:
    """A claim about one of the correlations, by its column."""
    (line,) = (each for each in LINES if each.model == model)

    def decide(study: Study) -> Judgement:
        found = validity(study, line)[cell]
        if math.isnan(found.low):
            raise SightlineError("too few positives with both")
        return judgement(found, f"r = {interval_words(found)}", expects, MARGINS["rho"])

    return Claim(sentence, decide, tuple(needs(line)))


@PAPER_TABLES.register("S9")
class ConstructValidity(PaperTable):
    number = "S9"
    title = "Coverage against interventions"
    about = (
        "All development positives. Occ.: drop of Full's yes-margin when the evidence is grayed, beyond that of as "
        "large a box elsewhere; Delete: drop when the evidence is taken from the mask. Partial correlations hold box "
        "area, cell area and Full's margin fixed; ranks and regressions are made anew in every draw."
    )
    blocks = (
        Block(
            ("Model",),
            (
                TableColumn("n", "n", "count"),
                TableColumn("ecr", "ECR", "score"),
                TableColumn("lpp", "LPP", "score"),
                TableColumn("geo_f1", "Geo-F1", "score"),
                TableColumn("occluded", "Occ. n", "count"),
                TableColumn("occlusion", "Occ. r", "score", interval=True),
                TableColumn("occlusion_partial", "Partial occ.", "score", interval=True),
                TableColumn("deletion", "Delete r", "score", interval=True),
                TableColumn("deletion_partial", "Partial delete", "score", interval=True),
            ),
            LINES,
            validity,
            needs,
        ),
    )
    claims = (
        _association("Qwen: where more is covered, deleting the evidence costs more of the margin.", QWEN, 7),
        _association("Qwen: so it does with box area, cell area and Full's margin held fixed.", QWEN, 8),
        _association("InternVL: no such association with deletion (within 0.2, our margin).", INTERNVL, 8, "equal"),
        _association("LLaVA: no association with graying (within 0.2, our margin).", LLAVA, 6, "equal"),
    )
