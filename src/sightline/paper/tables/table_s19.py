"""Table S19: OCRBench's own questions answered in words, and two easier ways to ask them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sightline.core.table import TableColumn
from sightline.paper.models import INTERNVL, LLAVA, MODELS, QWEN
from sightline.paper.needs import Need
from sightline.paper.open_scores import Compared, compared, score_difference
from sightline.paper.open_sets import OCRBENCH
from sightline.paper.paper_table import PAPER_TABLES, Block, Line, Measured, PaperTable, metric_heads
from sightline.paper.tables.shared import COUNT, counted_metrics

if TYPE_CHECKING:
    from sightline.paper.study import Study

BUDGETS = {"30%": "target_grid:0.3", "50%": "target_grid:0.5", "70%": "target_grid:0.7"}
YES_NO = ("accuracy", "hfpr", "keep")


def _line(budget: str, *published: float) -> Line:
    return Line((f"Qwen Target+Grid ({budget})",), (100, *published), QWEN, OCRBENCH, BUDGETS[budget])


LINES = (
    _line("30%", 0.300, 0.690, 0.480, -0.210, 0.777, 0.619, -0.158, 0.500),
    _line("50%", 0.500, 0.690, 0.520, -0.170, 0.777, 0.658, -0.119, 0.550),
    _line("70%", 0.700, 0.690, 0.660, -0.030, 0.777, 0.736, -0.041, 0.680),
)


def _against_full(study: Study, line: Line, rule: str) -> Compared:
    return compared(study, line.model, line.probes, line.arm, "full", rule=rule)


def generated(study: Study, line: Line) -> list[Measured]:
    """Full and pruned by two rules with their paired differences, then pruned by a third."""
    exact, anls, contains = (_against_full(study, line, rule) for rule in ("exact", "anls", "contains"))
    return [
        Measured(exact.n),
        Measured(exact.keep),
        *(cell for each in (exact, anls) for cell in (Measured(each.reference), Measured(each.score), each.change)),
        Measured(contains.score),
    ]


def by_other_rules(study: Study, line: Line) -> list[Measured]:
    found = [_against_full(study, line, rule) for rule in ("anls_stripped", "ocrbench")]
    return [cell for each in found for cell in (Measured(each.reference), Measured(each.score))]


def with_full(line: Line) -> list[Need]:
    return [Need(line.model, line.probes, ("full", line.arm))]


def _verified(model: str, arm: str, method: str, *published: float) -> Line:
    words = (MODELS[model].short, method)
    return Line(words, (200, *published), model, OCRBENCH, arm, scorer="verification")


VERIFIED = (
    _verified(QWEN, "full", "Full", 0.975, 0.02, 1.0),
    _verified(QWEN, "target:0.2", "Target (20%)", 0.865, 0.10, 0.207),
    _verified(QWEN, "target:0.3", "Target (30%)", 0.890, 0.08, 0.307),
    _verified(QWEN, "target_grid:0.3", "Target+Grid (30%)", 0.920, 0.05, 0.307),
    _verified(QWEN, "target_grid:0.4", "Target+Grid (40%)", 0.905, 0.07, 0.406),
    _verified(QWEN, "target_grid:0.5", "Target+Grid (50%)", 0.920, 0.05, 0.501),
    _verified(QWEN, "grid:0.3", "Grid (30%)", 0.890, 0.05, 0.307),
    _verified(QWEN, "random:0.3", "Random (30%)", 0.910, 0.06, 0.307),
    _verified(LLAVA, "full", "Full", 0.635, 0.65, 1.0),
    _verified(LLAVA, "protected:0.4", "Protected, without boxes (40%)", 0.620, 0.68, 0.401),
    _verified(LLAVA, "grid:0.4", "Grid (40%)", 0.640, 0.62, 0.401),
    _verified(LLAVA, "visionzip:0.4", "VisionZip (40%)", 0.605, 0.70, 0.401),
    _verified(LLAVA, "fastv:0.4", "FastV (40%)", 0.500, 0.00, 0.401),
    _verified(INTERNVL, "full", "Full", 0.935, 0.12, 1.0),
    _verified(INTERNVL, "target:0.5", "Target (50%)", 0.900, 0.16, 0.500),
    _verified(INTERNVL, "target_grid:0.5", "Target+Grid (50%)", 0.925, 0.12, 0.500),
    _verified(INTERNVL, "target_grid:0.6", "Target+Grid (60%)", 0.925, 0.09, 0.600),
    _verified(INTERNVL, "prompt:0.5", "Full-prompt (50%)", 0.815, 0.26, 0.500),
    _verified(INTERNVL, "grid:0.5", "Grid (50%)", 0.915, 0.12, 0.500),
)


def _ranked(arm: str, method: str, accuracy: float) -> Line:
    return Line((f"Qwen {method}",), (100, accuracy), QWEN, OCRBENCH, arm, scorer="candidate_ranking")


@PAPER_TABLES.register("S19")
class OcrBenchAnswers(PaperTable):
    number = "S19"
    title = "OCRBench: original questions answered in words"
    about = (
        "What the paper's table calls Qwen Grid is its text's Target+Grid, and so it is called here. Ten questions of "
        "each of ten types. Greedy answers of at most 32 tokens, as the paper says (its artifact "
        "stopped at 16); selectors look at the question alone, without the instruction that follows it. Exact and "
        "contains ignore case and punctuation; ANLS is the official one here, below it the artifact's."
    )
    blocks = (
        Block(
            ("Method",),
            (
                COUNT,
                TableColumn("keep", "Keep", "score"),
                TableColumn("full_exact", "Full exact", "score"),
                TableColumn("exact", "Pruned exact", "score"),
                TableColumn("exact_change", "Δ exact", "signed", interval=True),
                TableColumn("full_anls", "Full ANLS", "score"),
                TableColumn("anls", "Pruned ANLS", "score"),
                TableColumn("anls_change", "Δ ANLS", "signed", interval=True),
                TableColumn("contains", "Pruned contains", "score"),
            ),
            LINES,
            generated,
            with_full,
        ),
        Block(
            ("Method",),
            (
                TableColumn("full_stripped", "Full ANLS, stripped", "score"),
                TableColumn("stripped", "Pruned ANLS, stripped", "score"),
                TableColumn("full_ocrbench", "Full, OCRBench's rule", "score"),
                TableColumn("ocrbench", "Pruned, OCRBench's rule", "score"),
            ),
            tuple(replace(line, published=(*line.published[5:7], None, None)) for line in LINES),
            by_other_rules,
            with_full,
            title="The same answers by the artifact's ANLS, without punctuation, and by OCRBench's own rule",
        ),
        Block(
            ("Model", "Method"),
            (COUNT, *metric_heads(*YES_NO)),
            VERIFIED,
            counted_metrics(*YES_NO),
            title="Is the answer right? Yes or no about the accepted answer and about a decoy (Qwen at 50,176 pixels; "
            "from the artifact)",
        ),
        Block(
            ("Method",),
            (COUNT, *metric_heads("accuracy")),
            (_ranked("full", "Full", 0.950), _ranked("target_grid:0.3", "Target+Grid (30%)", 0.900)),
            counted_metrics("accuracy"),
            title="Which is likelier, the accepted answer or its decoy? (from the text of the paper)",
        ),
    )
    claims = (
        *(
            score_difference(
                f"Qwen answers come closer to Full at 70% than at {budget}.",
                model=QWEN, probes=OCRBENCH, arm=BUDGETS["70%"], minus=BUDGETS[budget], expects="above", rule="exact",
            )
            for budget in ("30%", "50%")
        ),
        score_difference(
            "Pruned to 30%, Qwen answers fewer original questions.",
            model=QWEN, probes=OCRBENCH, arm=BUDGETS["30%"], minus="full", expects="below", rule="exact",
        ),
    )  # fmt: skip
