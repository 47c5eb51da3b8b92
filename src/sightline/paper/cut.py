"""Where the margin is cut: t = 0, or a threshold chosen on development rows and judged on others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from sightline.analysis.thresholds import accuracy_optimal
from sightline.errors import SightlineError
from sightline.paper.models import INTERNVL
from sightline.paper.probe_sets import DEVELOPMENT
from sightline.probes.split import Side, hash_side
from sightline.statistics.plain_rows import plain_rows

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

    def needs(self, model: str) -> tuple[str, ...]:
        """Arms whose development rows the rule looks at, beside those that are judged."""
        return {"": (), "own": (), "full": ("full",)}.get(self.rule, (self.rule,))


AT_ZERO, SHARED, OWN = Cut(), Cut("full"), Cut("own")
RISK = Cut("target:0.5")
"""What the paper calls risk-constrained: the one threshold of its InternVL controls equals Target's own at 50 %."""


def judged(study: Study, model: str, probes: str, cut: Cut, box_source: str = "annotation") -> pd.DataFrame:
    """Rows of a run with ``margin`` measured from the threshold and answers to match.

    InternVL's rows on development images are those of the held-out ones, whatever the rule: its tables are about them.
    """
    found: pd.DataFrame = study.remembered(
        ("judged", model, probes, cut, box_source), lambda: _judged(study, model, probes, cut, box_source)
    )
    return found


def _judged(study: Study, model: str, probes: str, cut: Cut, box_source: str) -> pd.DataFrame:
    rows = study.rows(model, probes, box_source)
    if model == INTERNVL and probes.startswith(DEVELOPMENT):
        rows = on_side(rows, "test")
    if not cut.rule:
        return rows
    development = on_side(study.rows(model, DEVELOPMENT), "dev") if model == INTERNVL else study.rows(model, cut.probes)
    return _at(rows, _thresholds(study, model, rows, plain_rows(development), cut.rule))


def on_side(rows: pd.DataFrame, side: Side) -> pd.DataFrame:
    """The rows whose image falls on one side of the grouped hash split."""
    found: pd.DataFrame = rows[rows["image_id"].astype(str).map(hash_side) == side]
    if found.empty:
        raise SightlineError(f"the hash split leaves its {side} side without images; take more of them")
    return found


def _thresholds(study: Study, model: str, rows: pd.DataFrame, chosen_on: pd.DataFrame, rule: str) -> dict[str, float]:
    """Plain arm -> threshold."""
    development = plain_rows(chosen_on)
    arms = [str(arm) for arm in rows["plain_arm"].unique()]
    if rule == "own":
        return {arm: _best(development, arm) for arm in arms}
    name = study.arm(model, rule)
    return dict.fromkeys(arms, _best(development, name))


def _best(rows: pd.DataFrame, arm: str) -> float:
    own = rows[rows["arm"] == arm]
    if own.empty:
        raise SightlineError(f"no development rows of {arm} to choose a threshold on")
    return accuracy_optimal(own["label"] == "yes", own["margin"]).threshold


def _at(rows: pd.DataFrame, thresholds: dict[str, float]) -> pd.DataFrame:
    cut = rows["plain_arm"].astype(str).map(thresholds)
    margin = rows["margin"].astype(float) - cut
    answers = (margin >= 0).map({True: "yes", False: "no"})
    return rows.assign(margin=margin, predicted=answers, correct=answers == rows["label"])
