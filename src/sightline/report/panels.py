"""What stands together in a table: arms are compared within their regime, and every run has panels of its own."""

from __future__ import annotations

from collections.abc import Iterable

import pandas as pd

from sightline.core.regime import Regime
from sightline.report.source import Source
from sightline.statistics.keyed import as_names

BOX_FREE = "A. Box-free methods and controls"
ASSISTED = "B. Detector-assisted"
ORACLES = "C. Annotation-box oracles: diagnostics, not a deployable ranking"
UNKNOWN = "D. What these read is not known here: replayed masks, methods that are not installed"
PANELS: dict[Regime, str] = {
    "full": BOX_FREE,
    "box-free method": BOX_FREE,
    "box-free control": BOX_FREE,
    "detector-assisted": ASSISTED,
    "oracle": ORACLES,
    "replay": UNKNOWN,
}
"""By regime. Full stands with those that it is the reference of: it reads no boxes either."""


def panel_of(regime: object) -> str:
    """The panel of a row's regime; rows of a method that is not installed here have none."""
    return next((heading for known, heading in PANELS.items() if known == regime), UNKNOWN)


def arm_facts(source: Source) -> pd.DataFrame:
    """Per arm of the report: ``arm_name`` (the run's own), ``run`` (empty when there is one), ``regime``, boxes."""
    told = ["arm", "arm_name", "regime", "box_source"]
    parts = [
        audited.frame[told].drop_duplicates("arm").apply(as_names).assign(run=audited.name) for audited in source.runs
    ]
    return pd.concat(parts, ignore_index=True).set_index("arm")


def in_panels(frame: pd.DataFrame, facts: pd.DataFrame, *, by_run: bool = True) -> pd.DataFrame:
    """The lines of a table with ``regime``, ``arm_name`` and ``panel``, those of a panel together, else in order.

    ``facts`` are ``arm_facts``. With ``by_run`` the runs of a report have their own panels, one run after the other,
    and the arm needs no run in front of it.
    """
    own = facts.loc[frame["arm"]]
    headings = own["regime"].map(panel_of)
    if by_run:
        names, run = own["arm_name"], own["run"].where(own["run"] == "", own["run"] + " · ")
    else:
        names, run = frame["arm"], pd.Series("", index=own.index)
    found = frame.assign(regime=own["regime"].to_numpy(), arm_name=names.to_numpy(), panel=(run + headings).to_numpy())
    runs = list(dict.fromkeys(run))
    place = [(runs.index(r), h) for r, h in zip(run, headings, strict=True)]
    return found.iloc[sorted(range(len(found)), key=lambda i: place[i])].reset_index(drop=True)


def oracle_notes(arms: Iterable[str], frame: pd.DataFrame) -> list[str]:
    """A line for each of the named arms that is an oracle: whatever is decided about it, it cannot be deployed."""
    facts = frame[["arm", "regime", "box_source"]].drop_duplicates("arm").set_index("arm")
    return [
        f"{arm} {oracle_words(facts.loc[arm, 'box_source'])}: a diagnostic, not a method that could be deployed"
        for arm in dict.fromkeys(arms)
        if arm in facts.index and facts.loc[arm, "regime"] == "oracle"
    ]


def oracle_words(box_source: object) -> str:
    """Said behind whatever is claimed of an oracle."""
    if box_source == "annotation":
        return "(oracle: reads the annotated boxes)"
    if box_source == "none":
        return "(oracle: knows what no deployed method could)"
    return "(oracle: reads boxes made from the annotation)"
