"""The same masks with compact and with preserved positions."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sightline.analysis.comparison import Record, by_model, indexed, margins_of, table_of
from sightline.analysis.thresholds import accuracy_optimal, evaluate, flips, predict
from sightline.core.probe import ORIGINAL
from sightline.probes.split import hash_side
from sightline.statistics.metrics import auroc
from sightline.statistics.plain_rows import UNCHANGED


def position_policy_table(frame: pd.DataFrame, *, dev_buckets: int = 5) -> pd.DataFrame:
    """The same masks with compact and with preserved positions: raw, at own thresholds, at the compact one.

    Thresholds are chosen on the development side of the image-hash split and evaluated on the other. A comparison
    whose masks differ between the policies is none; ``mask_mismatches`` counts them.
    """
    rows = frame[
        (frame["view"] == ORIGINAL) & frame["intervention"].fillna(UNCHANGED).isin((UNCHANGED, "swap_positions"))
    ]
    records: list[Record] = []
    for model, members in by_model(rows):
        for arm, own in members.groupby("plain_arm", sort=False):
            sides = {str(policy): part for policy, part in own.groupby("positions", sort=False)}
            if set(sides) != {"compact", "preserve"} or (own["selector"] == "full").all():
                continue
            compact, preserve = (indexed(sides[policy], f"{arm} {policy}") for policy in ("compact", "preserve"))
            both = compact.index.intersection(preserve.index)
            records += [
                {"model": model, "arm": arm, **record}
                for record in _policies(compact.loc[both], preserve.loc[both], dev_buckets)
            ]
    return table_of(records, "no arm was run under both position policies; run again with --interventions positions")


def _policies(compact: pd.DataFrame, preserve: pd.DataFrame, dev_buckets: int) -> list[Record]:
    label = (compact["label"] == "yes").to_numpy()
    margins = {"compact": margins_of(compact).to_numpy(), "preserve": margins_of(preserve).to_numpy()}
    different = int((compact["kept_mask"] != preserve["kept_mask"]).sum()) if "kept_mask" in compact else 0
    dev = np.array([hash_side(str(image), dev_buckets) == "dev" for image in compact["image_id"]])
    cuts: dict[str, tuple[float, float]] = {"raw": (0.0, 0.0)}
    if dev.any() and not dev.all():
        own = {name: accuracy_optimal(label[dev], margin[dev]).threshold for name, margin in margins.items()}
        cuts |= {
            "own thresholds": (own["compact"], own["preserve"]),
            "compact threshold": (own["compact"], own["compact"]),
        }
    records: list[Record] = []
    for name, (first, second) in cuts.items():
        part = np.ones(len(label), dtype=bool) if name == "raw" else ~dev
        before, after = margins["compact"][part], margins["preserve"][part]
        moved = flips(predict(before, first), predict(after, second))
        record: Record = {
            "comparison": name, "n": int(part.sum()), "mask_mismatches": different,
            "flips": moved.total, "no_to_yes": moved.no_to_yes, "yes_to_no": moved.yes_to_no,
            "margin_change": float((after - before).mean()), "margin_change_abs": float(np.abs(after - before).mean()),
            "margin_change_max": float(np.abs(after - before).max()),
        }  # fmt: skip
        for policy, margin, cut in (("compact", before, first), ("preserve", after, second)):
            point = evaluate(label[part], margin, cut)
            record |= {
                f"threshold_{policy}": cut, f"accuracy_{policy}": point.accuracy, f"hfpr_{policy}": point.hfpr,
                f"auroc_{policy}": auroc(label[part], margin),
            }  # fmt: skip
        records.append(record)
    return records
