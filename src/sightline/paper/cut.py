"""Where the margin is cut: t = 0, or a threshold chosen on development rows and judged on others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from sightline.errors import SightlineError
from sightline.paper.models import INTERNVL
from sightline.paper.probe_sets import DEVELOPMENT
from sightline.probes.probe_file import Side, hash_side
from sightline.rows.source import refuse_shared
from sightline.rows.thresholds import apply_thresholds
from sightline.statistics.arm_rows import plain_rows
from sightline.statistics.thresholds import accuracy_optimal

if TYPE_CHECKING:
    from sightline.paper.study import Study


@dataclass(frozen=True)
class Cut:
    """A rule for the threshold, and the rows that are judged at it.

    InternVL has no second probe set: half of its images, by a hash of their ids, choose the threshold and the other
    half are judged (464 and 536 probes of 1,000). Qwen and LLaVA choose on the development set.
    """

    rule: str = ""
    """``full``: Full's most accurate threshold for every arm; ``own``: each arm's own; an arm: that arm's for all;
    nothing: t = 0, the likelihood's own decision."""
    probes: str = DEVELOPMENT
    """Where Qwen and LLaVA choose."""

    @property
    def arms(self) -> tuple[str, ...]:
        """Arms whose development rows the rule looks at, beside those that are judged."""
        return {"": (), "own": (), "full": ("full",)}.get(self.rule, (self.rule,))


RULES = {"full": "full-dev", "own": "own-dev"}
"""As ``--threshold`` spells them."""
AT_ZERO, SHARED, OWN = Cut(), Cut("full"), Cut("own")
RISK = Cut("target:0.5")
"""What the paper calls risk-constrained: the one threshold of its InternVL controls equals Target's own at 50 %."""


def judged(
    study: Study, model: str, probes: str, cut: Cut, box_source: str = "annotation", scorer: str = ""
) -> pd.DataFrame:
    """Rows of a run with their answers at the threshold; margins stay as they were recorded.

    InternVL's rows on development images are those of the held-out ones, whatever the rule: its tables are about them.
    """
    found: pd.DataFrame = study.remembered(
        ("judged", model, probes, cut, box_source, scorer),
        lambda: _judged(study, model, probes, cut, box_source, scorer),
    )
    return found


def _judged(study: Study, model: str, probes: str, cut: Cut, box_source: str, scorer: str) -> pd.DataFrame:
    rows = study.rows(model, probes, box_source, scorer)
    if model == INTERNVL and probes.startswith(DEVELOPMENT):
        rows = on_side(rows, "test")
    if not cut.rule:
        return rows
    development = on_side(study.rows(model, DEVELOPMENT), "dev") if model == INTERNVL else study.rows(model, cut.probes)
    if model != INTERNVL and cut.probes != probes:
        refuse_shared(study.run(model, cut.probes), development, study.run(model, probes, box_source, scorer), rows)
    if cut.rule in RULES:
        return apply_thresholds(rows, development, RULES[cut.rule]).rows
    arm = study.arm(model, cut.rule)
    own = plain_rows(development[development["arm"] == arm])
    if own.empty:
        raise SightlineError(f"no development rows of {cut.rule} to choose a threshold on")
    return apply_thresholds(rows, None, accuracy_optimal(own["label"] == "yes", own["margin"]).threshold).rows


def on_side(rows: pd.DataFrame, side: Side) -> pd.DataFrame:
    """The rows whose image falls on one side of the grouped hash split."""
    found: pd.DataFrame = rows[rows["image_id"].astype(str).map(hash_side) == side]
    if found.empty:
        raise SightlineError(f"the hash split leaves its {side} side without images; take more of them")
    return found
