"""Table S15: how far the answer moves when the evidence goes, from the mask and from the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sightline.analysis.comparison import compare_support, indexed
from sightline.core.table import TableColumn
from sightline.errors import SightlineError
from sightline.paper.cut import judged
from sightline.paper.models import INTERNVL, LLAVA, MODELS, QWEN
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
from sightline.paper.probe_sets import DEVELOPMENT, OCCLUDED
from sightline.paper.tables.shared import COUNT

if TYPE_CHECKING:
    from sightline.paper.study import Study

PARTS = ("support_diff", "pos_support_diff", "neg_support_diff")


@dataclass(frozen=True)
class Sides:
    left: str
    right: str


def _mask(model: str, words: str, left: str, right: str, *published: float) -> Line:
    *moved, n = published
    return Line((MODELS[model].short, words, "tokens"), (*moved, n), model, DEVELOPMENT, about=Sides(left, right))


def _image(model: str, words: str, right: str, *published: float) -> Line:
    *moved, n = published
    about = Sides("full", f"full+{right}")
    return Line((MODELS[model].short, words, "image"), (*moved, n), model, OCCLUDED[model], about=about)


LINES = (
    _mask(QWEN, "evidence kept − removed", "evidence_only:0.3", "anti_evidence:0.3", +0.884, +2.909, -1.140, 1000),
    _mask(QWEN, "selected − removed", "target:0.3", "anti_evidence:0.3", +1.089, +3.316, -1.139, 1000),
    _mask(QWEN, "selected − Full", "target:0.3", "full", +0.006, -0.017, +0.029, 1000),
    _image(QWEN, "original − evidence grayed", "occlude_evidence", +2.190, +6.261, -1.882, 200),
    _image(QWEN, "original − other box grayed", "occlude_random", +0.037, +0.119, -0.045, 200),
    _mask(LLAVA, "evidence kept − removed", "evidence_only:0.4", "anti_evidence:0.4", +0.005, +0.039, -0.029, 1000),
    _mask(LLAVA, "selected − Full", "protected:0.4", "full", +0.019, +0.053, -0.015, 1000),
    _image(LLAVA, "original − evidence grayed", "occlude_evidence", +0.009, +0.025, -0.007, 100),
    _mask(INTERNVL, "evidence kept − removed", "evidence_only:0.5", "anti_evidence:0.5", +0.218, +0.146, +0.291, 536),
    _mask(INTERNVL, "selected − Full", "soft_evidence:0.5", "full", -0.032, -0.285, +0.222, 536),
    _image(INTERNVL, "original − evidence grayed", "occlude_evidence", +0.133, +0.786, -0.521, 100),
)


def support_moved(study: Study, line: Line) -> list[Measured]:
    """Target support (+ margin on yes probes, - margin on no probes) of one side minus the other's, paired."""
    whole = line.probes != DEVELOPMENT  # InternVL's grayed images are not split
    rows = study.rows(line.model, line.probes) if whole else judged(study, line.model, line.probes, line.cut)
    sides = []
    for arm in (line.about.left, line.about.right):
        own = rows[rows["arm"] == study.arm(line.model, arm)]
        if own.empty:
            raise SightlineError(f"{arm} has not been measured")
        sides.append(indexed(own, arm))
    found = compare_support(sides[0], sides[1], study.options.draws)
    moved = [Measured(found[part], found[f"{part}_low"], found[f"{part}_high"]) for part in PARTS]
    return [*moved, Measured(float(found["n"]))]


def _moves(sentence: str, line: Line) -> Claim:
    def decide(study: Study) -> Judgement:
        found = support_moved(study, line)[0]
        return judgement(found, f"target support {interval_words(found)}")

    return Claim(sentence, decide, tuple(needs(line)))


def needs(line: Line) -> list[Need]:
    return [Need(line.model, line.probes, (line.about.left, line.about.right))]


@PAPER_TABLES.register("S15")
class SupportDrops(PaperTable):
    number = "S15"
    title = "Target support without the evidence"
    about = (
        "Differences in target support: the margin for yes on positives, its negative on negatives (the signs of the "
        "published negative column follow from that, though its caption speaks of yes-margins). Images are grayed on "
        "the first 100 (Qwen) and 50 images of the development set."
    )
    blocks = (
        Block(
            ("Model", "Comparison", "Where"),
            (
                TableColumn("overall", "Overall", "signed", interval=True),
                TableColumn("positive", "Positive", "signed", interval=True),
                TableColumn("negative", "Negative", "signed", interval=True),
                COUNT,
            ),
            LINES,
            support_moved,
            needs,
        ),
    )
    claims = (
        *(
            _moves(f"{line.words[0]}: answers lose support when the evidence leaves the prefix.", line)
            for line in LINES
            if line.words[0] in ("Qwen", "InternVL") and line.words[1] == "evidence kept − removed"
        ),
        _moves(
            "Qwen: graying the evidence costs more support than graying another box of its size.",
            Line((), (), QWEN, OCCLUDED[QWEN], about=Sides("full+occlude_random", "full+occlude_evidence")),
        ),
    )
