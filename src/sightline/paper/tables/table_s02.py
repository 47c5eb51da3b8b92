"""Table S2: how far each metric moves while one hyper-parameter does."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sightline.core.table import TableColumn, format_range
from sightline.paper.cut import AT_ZERO, SHARED
from sightline.paper.models import INTERNVL, MODELS, QWEN
from sightline.paper.needs import Need
from sightline.paper.paper_table import PAPER_TABLES, Block, Line, Measured, PaperTable, difference, usual_needs
from sightline.paper.probe_sets import CONFIRMATION, DEVELOPMENT
from sightline.paper.tables.shared import arm_line

if TYPE_CHECKING:
    from sightline.paper.study import Study

METRICS = ("accuracy", "hfpr", "auroc", "pn_average")
HEADS = ("Acc. range", "hFPR range", "AUROC range", "Coverage range")


def _sweep(model: str, name: str, settings: str, frozen: str, arms: tuple[str, ...], *published: str | None) -> Line:
    internvl = model == INTERNVL
    return Line(
        (MODELS[model].short, name, settings, frozen),
        published,
        model,
        DEVELOPMENT if internvl else CONFIRMATION,
        cut=SHARED if internvl else AT_ZERO,
        about=arms,
    )


LINES = (
    _sweep(
        QWEN, "relevance weight", "0.50–1.00", "0.85",
        tuple(f"target:0.3:weight={weight}" for weight in (0.5, 0.7, 0.85, 1.0)),
        "0.757–0.788", "0.232–0.294", None, "0.544–0.611",
    ),
    _sweep(
        QWEN, "query top-k", "1, 2, 4", "2", tuple(f"target:0.3:top={top}" for top in (1, 2, 4)),
        "0.774–0.786", "0.240–0.260", None, "0.553–0.571",
    ),
    _sweep(
        QWEN, "grid reservation", "0.00–0.75", "0.00",
        # No reservation at all is plain Target; target_grid always reserves one token.
        ("target:0.3", *(f"target_grid:0.3:reserve={share}" for share in (0.25, 0.5, 0.75))),
        "0.784–0.786", "0.238–0.246", None, "0.507–0.564",
    ),
    _sweep(
        INTERNVL, "evidence weight β", "0.00–0.20", "0.05",
        tuple(f"soft_evidence:0.5:beta={beta}" for beta in (0.0, 0.02, 0.05, 0.1, 0.2)),
        "0.604–0.618", "0.522–0.556", "0.688–0.697", "0.872–0.940",
    ),
)  # fmt: skip


def _settings(line: Line) -> list[Line]:
    return [replace(line, arm=arm) for arm in line.about]


def ranges(study: Study, line: Line) -> list[Measured]:
    """Lowest and highest of each metric over the settings of the sweep."""
    found = [arm_line(study, setting, METRICS) for setting in _settings(line)]
    spans = [(min(one[name] for one in found), max(one[name] for one in found)) for name in METRICS]
    return [Measured(format_range(low, high, "score")) for low, high in spans]


def needs(line: Line) -> list[Need]:
    return [need for setting in _settings(line) for need in usual_needs(setting)]


@PAPER_TABLES.register("S2")
class Sensitivity(PaperTable):
    number = "S2"
    title = "Selector sensitivity, one factor at a time"
    about = (
        "Qwen at 30 % of the confirmation set and t = 0; InternVL at 50 % of its held-out half at Full's threshold. "
        "Ranges are over the settings of a sweep; coverage is the P/N average."
    )
    blocks = (
        Block(
            ("Model", "Sweep", "Settings", "Frozen"),
            tuple(TableColumn(name, head, "words") for name, head in zip(METRICS, HEADS, strict=True)),
            LINES,
            ranges,
            needs,
        ),
    )
    claims = (
        *(
            difference(
                f"Qwen: the two best query matches answer better than {words}.",
                model=QWEN, probes=CONFIRMATION, arm="target:0.3", minus=f"target:0.3:top={top}", metric="accuracy",
                expects="above",
            )
            for top, words in ((1, "the best alone"), (4, "the best four"))
        ),
        difference(
            "Qwen: more weight on the norm keeps more of the source regions.",
            model=QWEN, probes=CONFIRMATION, arm="target:0.3:weight=0.5", minus="target:0.3:weight=1.0",
            metric="pn_average", expects="above",
        ),
        difference(
            "InternVL: a heavier evidence prior keeps more of the source regions.",
            model=INTERNVL, probes=DEVELOPMENT, arm="soft_evidence:0.5:beta=0.2", minus="soft_evidence:0.5:beta=0.0",
            metric="pn_average", expects="above", cut=SHARED,
        ),
    )  # fmt: skip
