"""Table S17: milliseconds of one scoring pass on LLaVA, selection included, over fresh processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sightline.core.table import TableColumn
from sightline.paper.cost_cards import card_of, line_of, repeated_timing
from sightline.paper.models import LLAVA
from sightline.paper.needs import Need
from sightline.paper.paper_table import PAPER_TABLES, Block, Claim, Judgement, Line, Measured, PaperTable

if TYPE_CHECKING:
    from sightline.paper.study import Study

CARD = "s17-llava"
STAGES = ("vision", "select", "language", "total")


def _line(arm: str, method: str, keep: float, vision: str, select: str, language: str, total: str, gain: float) -> Line:
    return Line((method,), (keep, vision, select, language, total, gain), LLAVA, arm=arm)


LINES = (
    _line("full", "Full prefix", 1.000, "9.9 ± 0.2", "0.9 ± 0.0", "63.6 ± 0.1", "75.4 ± 0.3", 1.00),
    _line("protected:0.4", "Protected (40%)", 0.400, "10.4 ± 0.2", "6.1 ± 0.1", "38.0 ± 0.3", "55.3 ± 0.5", 1.36),
    _line("target:0.4", "Target (40%)", 0.401, "9.9 ± 0.4", "5.2 ± 0.1", "37.9 ± 0.3", "53.9 ± 0.9", 1.40),
    _line("anchorprune:0.4", "AnchorPrune (40%)", 0.401, "10.0 ± 0.0", "13.4 ± 0.1", "37.8 ± 0.0", "62.0 ± 0.1", 1.22),
    _line("scope:0.4", "SCOPE (40%)", 0.400, "9.7 ± 0.2", "42.2 ± 1.0", "37.6 ± 0.2", "90.7 ± 1.3", 0.83),
    _line("coin:0.4", "CoIn (40%)", 0.400, "10.0 ± 0.2", "84.6 ± 1.8", "37.5 ± 0.1", "133.0 ± 2.0", 0.57),
)
ARMS = tuple(line.arm for line in LINES)


def timed(study: Study, line: Line) -> list[Measured]:
    study.require(LLAVA)
    record = line_of(card_of(study, CARD), line.arm)
    return [Measured(record["keep"]), *(Measured(record[stage]) for stage in STAGES), Measured(record["speedup"])]


def time_it(study: Study) -> None:
    if LLAVA in study.models:
        repeated_timing(study, CARD, LLAVA, ARMS)


def _faster(study: Study) -> Judgement:
    study.require(LLAVA)
    card = card_of(study, CARD)
    gains = {arm: float(line_of(card, arm)["speedup"]) for arm in ARMS if arm not in ("full", "protected:0.4")}
    words = ", ".join(f"{arm} {gain:.2f}×" for arm, gain in gains.items())
    held = min(gains["target:0.4"], gains["anchorprune:0.4"]) > 1 > max(gains["scope:0.4"], gains["coin:0.4"])
    return Judgement("holds" if held else "fails", words)


def no_rows(line: Line) -> list[Need]:
    return []


@PAPER_TABLES.register("S17")
class RepeatedTiming(PaperTable):
    number = "S17"
    title = "Repeated single-sample timing on LLaVA"
    about = (
        "One teacher-forced pass over a real probe: three fresh processes over the same 100 probes, the first five "
        "dropped, arms rotated; mean and sample deviation over processes. Published on an A800; times of another "
        "device are its own, ratios may be compared. AnchorPrune's published selection is the mean of one that was "
        "computed and one from a cache."
    )
    blocks = (
        Block(
            ("Method",),
            (
                TableColumn("keep", "Keep", "score"),
                TableColumn("vision", "Vision ms", "words"),
                TableColumn("select", "Select/materialise ms", "words"),
                TableColumn("language", "LLM ms", "words"),
                TableColumn("total", "Total ms", "words"),
                TableColumn("speedup", "Speed-up", "ratio"),
            ),
            LINES,
            timed,
            no_rows,
            requires="a GPU for times that mean something",
            prepare=time_it,
        ),
    )
    claims = (
        Claim(
            "Target and AnchorPrune are faster than Full with their selection (published 1.40× and 1.22×); SCOPE and "
            "CoIn cost more than they save.",
            _faster,
            answers=False,
        ),
    )
