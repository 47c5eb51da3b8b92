"""Table S8: at one budget, does the mask that covers more of an image keep more of its margin?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from sightline.core.table import TableColumn
from sightline.errors import SightlineError
from sightline.paper.models import QWEN
from sightline.paper.needs import Need
from sightline.paper.paper_table import (
    PAPER_TABLES,
    Block,
    Claim,
    Judgement,
    Line,
    Measured,
    PaperTable,
    interval_words,
    judgement,
)
from sightline.paper.probe_sets import CONFIRMATION
from sightline.paper.tables.shared import RANDOM_30
from sightline.report.sections.validity import association_frame
from sightline.rows.images import probe_scales

if TYPE_CHECKING:
    from sightline.paper.study import Study

ARMS = ("target:0.3", RANDOM_30, "grid:0.3", "visionzip_qwen:0.3")
CONTROLS, EFFECTS = "measured controls, arm effects", "image and arm effects"
WORDS = {CONTROLS: "Measured controls, method effects", EFFECTS: "Image and method effects"}
PREDICTORS = {"ecr": "ECR", "lpp": "LPP", "geo_f1": "Geo-F1"}


def _line(scope: str, specification: str, predictor: str, value: float, low: float, high: float) -> Line:
    words = WORDS[specification] if scope == "all" else f"Deletion only: {WORDS[specification].lower()}"
    published = (500, value, f"[{low:.3f}, {high:.3f}]")
    about = (scope, specification, predictor)
    return Line((words, PREDICTORS[predictor]), published, QWEN, CONFIRMATION, about=about)


LINES = (
    _line("all", CONTROLS, "ecr", 0.232, 0.191, 0.273),
    _line("all", CONTROLS, "lpp", 0.229, 0.184, 0.273),
    _line("all", CONTROLS, "geo_f1", 0.240, 0.196, 0.283),
    _line("all", EFFECTS, "ecr", 0.237, 0.186, 0.286),
    _line("all", EFFECTS, "lpp", 0.219, 0.167, 0.271),
    _line("all", EFFECTS, "geo_f1", 0.232, 0.181, 0.281),
    _line("deletion_only", CONTROLS, "ecr", 0.279, 0.230, 0.328),
    _line("deletion_only", EFFECTS, "ecr", 0.253, 0.188, 0.315),
)


def association(study: Study, line: Line) -> list[Measured]:
    found = _found(study, *line.about)
    ends = f"[{found['estimate_low']:.3f}, {found['estimate_high']:.3f}]"
    return [Measured(float(found["images"])), Measured(float(found["estimate"])), Measured(ends)]


def _found(study: Study, scope: str, specification: str, predictor: str) -> Any:
    table: pd.DataFrame = study.remembered("conditional audit", lambda: _audit(study))
    chosen = (table["scope"] == scope) & (table["specification"] == specification) & (table["predictor"] == predictor)
    if not chosen.any():
        raise SightlineError("too few images with all masks")
    return table[chosen].iloc[0]


def _audit(study: Study) -> pd.DataFrame:
    run = study.run(QWEN, CONFIRMATION)
    arms = [study.arm(QWEN, arm) for arm in ARMS]
    return association_frame(study.rows(QWEN, CONFIRMATION), probe_scales(run), arms=arms, draws=study.options.draws)


def _associated(study: Study) -> Judgement:
    found = _found(study, "all", EFFECTS, "ecr")
    rho = Measured(*(float(found[name]) for name in ("estimate", "estimate_low", "estimate_high")))
    return judgement(rho, f"r = {interval_words(rho)}")


def needs(line: Line) -> list[Need]:
    return [Need(QWEN, CONFIRMATION, ("full", *ARMS))]


@PAPER_TABLES.register("S8")
class ConditionalAudit(PaperTable):
    number = "S8"
    title = "Coverage and margin at one budget"
    about = (
        "Positives of the confirmation set under four masks at 30 %. Outcome: the mask's margin minus Full's; ranks, "
        "residuals, images resampled. Merged tokens count by their anchors, as in the published figures."
    )
    blocks = (
        Block(
            ("Specification", "Predictor"),
            (
                TableColumn("images", "Images", "count"),
                TableColumn("estimate", "r", "score"),
                TableColumn("ends", "Interval", "words"),
            ),
            LINES,
            association,
            needs,
        ),
    )
    claims = (
        Claim(
            "Where more of the evidence is covered, more of the yes-margin survives, within images and methods.",
            _associated,
        ),
    )
