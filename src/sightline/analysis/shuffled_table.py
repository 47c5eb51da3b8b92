"""The same scores on the wrong tokens: what is left of an arm when they are shuffled, at the same budget."""

from __future__ import annotations

import pandas as pd

from sightline.analysis.comparison import Record, by_model, table_of
from sightline.statistics.bootstrap import DRAWS
from sightline.statistics.plain_rows import plain_rows
from sightline.statistics.summaries import arm_points, paired_differences

CONTROL = "shuffled"
SHOWN = ("accuracy", "hfpr", "keep", "pn_average", "anchor_pn_average")
COMPARED = ("accuracy", "hfpr", "pn_average", "anchor_pn_average")


def shuffled_table(frame: pd.DataFrame, *, control: str = CONTROL, draws: int = DRAWS) -> pd.DataFrame:
    """Every pruning arm beside the shuffled control of its budget.

    Metrics of the arm, those of the control (``control_...``), and ``delta_...``: control minus arm, paired by probe,
    with image-cluster intervals. Other controls and oracles have no scores to shuffle and are left out.
    """
    records: list[Record] = []
    for model, rows in by_model(plain_rows(frame)):
        rows = rows.assign(arm=rows["plain_arm"])
        arms = {str(arm): part for arm, part in rows.groupby("plain_arm", sort=False)}
        for name in (arm for arm, part in arms.items() if part["selector"].iloc[0] == control):
            own = {metric: arm_points(arms[name], [metric])[metric] for metric in SHOWN}
            for arm, part in arms.items():
                if not _is_shuffled_by(part, arms[name]):
                    continue
                record: Record = {"model": model, "budget": part["budget"].iloc[0], "arm": arm, "control": name}
                record |= {"n": len(part), **arm_points(part, SHOWN)}
                record |= {f"control_{metric}": value for metric, value in own.items()}
                both = pd.concat([part, arms[name]], ignore_index=True)
                for line in paired_differences(both, arm, metrics=COMPARED, draws=draws).to_dict("records"):
                    delta = f"delta_{line['metric']}"
                    record |= {delta: line["diff"], f"{delta}_low": line["low"], f"{delta}_high": line["high"]}
                records.append(record)
    return table_of(records, f"no budget has a method and the arm {control}; add it, for example {control}:0.3")


def _is_shuffled_by(part: pd.DataFrame, control: pd.DataFrame) -> bool:
    """A method at the control's budget; rows of the first release do not say what is a method."""
    first, other = part.iloc[0], control.iloc[0]
    role = first.get("role")
    if isinstance(role, str) and role != "method":
        return False
    return bool(first["selector"] not in ("full", other["selector"]) and first["budget"] == other["budget"])
