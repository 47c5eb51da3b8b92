"""One table per intervention, from the rows of a run (``run.frame()``) or of several runs under one another.

Every function is pure, returns a pandas DataFrame and raises a SightlineError of one line when its rows are not there.
Intervals resample images.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from sightline.analysis.comparison import (
    Record,
    by_model,
    compare_support,
    indexed,
    mean_interval,
    plain_rows,
    rates,
    spread,
)
from sightline.analysis.construct import conditional_table, construct_validity_table, scale_strata_table
from sightline.analysis.thresholds import accuracy_optimal, evaluate, flips
from sightline.errors import SightlineError
from sightline.interventions import families
from sightline.probes.split import hash_side
from sightline.statistics.bootstrap import DRAWS, replicate
from sightline.statistics.intervals import percentile_interval, wilson
from sightline.statistics.metrics import METRICS, auroc
from sightline.statistics.rows import ArmRows

__all__ = [
    "box_source_table",
    "conditional_table",
    "construct_validity_table",
    "deletion_table",
    "edit_region_table",
    "image_dependence_table",
    "logit_drop_table",
    "occlusion_table",
    "position_policy_table",
    "scale_strata_table",
    "text_replacement_table",
]


def deletion_table(frame: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
    """What removing the evidence costs, and how much of it each restoration brings back.

    recovery = (accuracy - accuracy when removed) / (accuracy of the selection - accuracy when removed), NaN where
    removal cost nothing. ``change`` is accuracy minus the plain arm's, paired by probe.
    """
    records: list[Record] = []
    original = frame[frame["view"] == "orig"]
    for model, rows in by_model(original):
        for arm, own in rows.groupby("plain_arm", sort=False):
            variants = {str(what): indexed(part, f"{arm} {what}") for what, part in own.groupby("intervention")}
            if "remove_evidence" not in variants or "none" not in variants:
                continue
            selected = variants["none"]
            before = float(selected["correct"].astype(float).mean())
            after = float(variants["remove_evidence"]["correct"].astype(float).mean())
            for name in ("none", *map(str, families()["deletion"])):
                if name not in variants:
                    continue
                part = variants[name]
                shared = part.index.intersection(selected.index)
                change = part.loc[shared, "correct"].astype(float) - selected.loc[shared, "correct"].astype(float)
                measured = rates(part)
                records.append(
                    {
                        "model": model,
                        "arm": arm,
                        "variant": "selected" if name == "none" else name,
                        **measured,
                        "change_from_removed": measured["accuracy"] - after,
                        **spread("change", mean_interval(change, selected.loc[shared, "image_id"], draws)),
                        "recovery": (measured["accuracy"] - after) / (before - after) if before != after else math.nan,
                    }
                )
    return _table(records, "no arm has its evidence removed; run again with --interventions deletion")


def logit_drop_table(frame: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
    """Target support with the evidence kept, removed, and under every pruning arm of the same budget, by label.

    Needs the arms ``evidence_only`` (kept) and ``anti_evidence`` (removed).
    """
    records: list[Record] = []
    for model, rows in by_model(plain_rows(frame)):
        arms = {str(arm): indexed(part, str(arm)) for arm, part in rows.groupby("plain_arm", sort=False)}
        selector = {arm: str(part["selector"].iloc[0]) for arm, part in arms.items()}
        full = next((arm for arm in arms if selector[arm] == "full"), None)
        for removed in (arm for arm in arms if selector[arm] == "anti_evidence"):
            budget = arms[removed]["budget"].iloc[0]
            peers = [arm for arm in arms if arms[arm]["budget"].iloc[0] == budget]
            kept = next((arm for arm in peers if selector[arm] == "evidence_only"), None)
            if kept is None:
                continue
            pairs = [(kept, removed), *([(full, removed)] if full else [])]
            for arm in peers:
                if selector[arm] not in ("evidence_only", "anti_evidence"):
                    pairs += [(arm, removed), *([(arm, full)] if full else []), (arm, kept)]
            records += [
                {"model": model, "budget": budget, "left": left, "right": right,
                 **compare_support(arms[left], arms[right], draws)}
                for left, right in pairs
            ]  # fmt: skip
    return _table(records, "no budget has the arms evidence_only and anti_evidence; add both, for example at 0.3")


def occlusion_table(frame: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
    """Target support on the original, with the evidence grayed, and with as large a box grayed elsewhere."""
    names = {"orig": "original", "evidence_masked": "evidence grayed", "random_masked": "other box grayed"}
    records: list[Record] = []
    for model, rows in by_model(frame):
        for arm, own in rows.groupby("plain_arm", sort=False):
            views = {view: indexed(part, f"{arm} {view}") for view, part in _views(own) if view in names}
            if len(views) < len(names):
                continue
            for left, right in (
                ("orig", "evidence_masked"),
                ("random_masked", "evidence_masked"),
                ("orig", "random_masked"),
            ):
                sides = {"left": names[left], "right": names[right]}
                records.append(
                    {"model": model, "arm": arm, **sides, **compare_support(views[left], views[right], draws)}
                )
    return _table(records, "no arm was run on occluded images; run again with --interventions occlusion")


def _views(own: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    """Rows of one arm by view, without mask edits and swapped positions."""
    image_only = own[(own["intervention"].fillna("none") == "none") | (own["view"] != "orig")]
    return [(str(view), part) for view, part in image_only.groupby("view", sort=False)]


def image_dependence_table(
    frame: pd.DataFrame,
    *,
    threshold: float | Mapping[str, float] = 0.0,
    images: Collection[str] | None = None,
    draws: int = DRAWS,
) -> pd.DataFrame:
    """The same questions about the matching image, a gray one and wrong ones, at one threshold per model.

    ``images`` restricts the table to a stratum, for example ``outcomes.lexically_plausible(run.probes)``. The row
    ``wrong images`` averages over the seeds. ``delta_accuracy`` is against the matching image, paired by image.
    """
    records: list[Record] = []
    chosen = frame if images is None else frame[frame["image_id"].isin(set(images))]
    for model, rows in by_model(chosen):
        cut = threshold.get(model, 0.0) if isinstance(threshold, Mapping) else threshold
        for arm, own in rows.groupby("plain_arm", sort=False):
            views = {view: indexed(part, f"{arm} {view}") for view, part in _views(own)}
            controls = {v: p for v, p in views.items() if v == "blank" or v.startswith("image_mismatch_seed")}
            if "orig" not in views or not controls:
                continue
            matched = views["orig"]
            lines = [{"condition": "matching image", **_image_metrics(matched, cut, draws)}]
            for view, part in controls.items():
                shared = part.index.intersection(matched.index)
                change = _right(part.loc[shared], cut) - _right(matched.loc[shared], cut)
                delta = spread("delta_accuracy", mean_interval(change, matched.loc[shared, "image_id"], draws))
                lines.append({"condition": view, **_image_metrics(part, cut, draws), **delta})
            wrong = [line for line in lines if str(line["condition"]).startswith("image_mismatch_seed")]
            if len(wrong) > 1:
                names = [name for name in wrong[0] if name != "condition" and not name.endswith(("_low", "_high"))]
                lines.append({"condition": "wrong images", **{n: float(np.mean([w[n] for w in wrong])) for n in names}})
            records += [{"model": model, "arm": arm, "threshold": cut, **line} for line in lines]
    return _table(
        records, "no arm was asked about gray or wrong images; run a set of `sightline controls build image-free`"
    )


def _right(rows: pd.DataFrame, threshold: float) -> pd.Series:
    return ((rows["margin"].astype(float) >= threshold) == (rows["label"] == "yes")).astype(float)


def _image_metrics(rows: pd.DataFrame, threshold: float, draws: int) -> Record:
    positive = (rows["label"] == "yes").to_numpy()
    margin = rows["margin"].astype(float).to_numpy()
    point = evaluate(positive, margin, threshold)
    pairs = rows.assign(positive=positive).pivot_table(index="image_id", columns="positive", values="margin")
    gap = (pairs[True] - pairs[False]).dropna() if {True, False} <= set(pairs.columns) else pd.Series(dtype=float)
    record: Record = {
        "n": len(rows), "images": rows["image_id"].nunique(), "accuracy": point.accuracy,
        "positive_accuracy": point.positive_accuracy, "negative_accuracy": point.negative_accuracy, "hfpr": point.hfpr,
        "balanced_accuracy": (point.positive_accuracy + point.negative_accuracy) / 2.0, "yes_rate": point.yes_rate,
        "margin_gap": float(gap.mean()), "margin_win_rate": float((gap > 0).mean()) if len(gap) else math.nan,
        "auroc": auroc(positive, margin), "auroc_low": math.nan, "auroc_high": math.nan,
    }  # fmt: skip
    if positive.any() and not positive.all() and record["images"] > 1:
        arm = ArmRows.of(positive, margin, rows["image_id"].to_numpy(), threshold=threshold)
        record["auroc_low"], record["auroc_high"] = percentile_interval(
            replicate(arm, [METRICS["auroc"]], draws=draws)[:, 0]
        )
    return record


def box_source_table(frame: pd.DataFrame, quality: Mapping[str, Mapping[str, Any]] | None = None) -> pd.DataFrame:
    """Every arm under every box source; coverage is that of the annotated regions throughout.

    ``quality`` maps a box source to the ``boxes`` entry of its run's manifest: missing rate, best IoU, latency.
    """
    plain = plain_rows(frame)
    if set(plain["box_source"].dropna()) <= {"annotation"}:
        raise SightlineError("all rows saw annotated boxes; run again with --box-source and give both runs")
    records: list[Record] = []
    for model, rows in by_model(plain):
        for (arm, source), own in rows.groupby(["plain_arm", "box_source"], sort=False):
            record = {"model": model, "arm": arm, "box_source": source, **rates(own)}
            record["boxes_ms"] = float(own["boxes_ms"].astype(float).mean()) if "boxes_ms" in own else math.nan
            known = (quality or {}).get(str(source), {})
            record |= {name: known.get(name, math.nan) for name in ("missing_rate", "best_iou", "boxes_per_probe")}
            records.append(record)
    return pd.DataFrame(records)


def position_policy_table(frame: pd.DataFrame, *, dev_buckets: int = 5) -> pd.DataFrame:
    """The same masks with compact and with preserved positions: raw, at own thresholds, at the compact one.

    Thresholds are chosen on the development side of the image-hash split and evaluated on the other. A comparison
    whose masks differ between the policies is none; ``mask_mismatches`` counts them.
    """
    rows = frame[(frame["view"] == "orig") & frame["intervention"].fillna("none").isin(("none", "swap_positions"))]
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
    return _table(records, "no arm was run under both position policies; run again with --interventions positions")


def _policies(compact: pd.DataFrame, preserve: pd.DataFrame, dev_buckets: int) -> list[Record]:
    label = (compact["label"] == "yes").to_numpy()
    margins = {"compact": compact["margin"].to_numpy(float), "preserve": preserve["margin"].to_numpy(float)}
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
        moved = flips(before >= first, after >= second)
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


def text_replacement_table(frame: pd.DataFrame, *, threshold: float | Mapping[str, float] = 0.0) -> pd.DataFrame:
    """The four-control test: both questions answered right on the original, the replacement, the sham, the erasure.

    A semantic switch is original and replacement; ``all_controls`` all four, with Wilson's interval.
    """
    versions = ("original", "replacement", "sham", "erase")
    kinds = [f"{version}_{asked}" for version in versions for asked in ("source", "target")]
    asked = frame[frame["kind"].isin(kinds)]
    records: list[Record] = []
    for model, rows in by_model(asked):
        cut = threshold.get(model, 0.0) if isinstance(threshold, Mapping) else threshold
        for arm, own in rows.groupby("plain_arm", sort=False):
            right = own.assign(right=_right(own, cut)).pivot_table(index="image_id", columns="kind", values="right")
            if not set(kinds) <= set(right.columns):
                continue
            complete = right.dropna(subset=kinds)
            pair = {v: (complete[[f"{v}_source", f"{v}_target"]] == 1.0).all(axis=1) for v in versions}
            every = pd.DataFrame(pair).all(axis=1)
            low, high = wilson(int(every.sum()), len(every))
            record = {"model": model, "arm": arm, "images": len(complete)}
            record |= {version: float(passed.mean()) for version, passed in pair.items()}
            record["semantic_switch"] = float((pair["original"] & pair["replacement"]).mean())
            record |= {"all_controls": float(every.mean()), "all_controls_low": low, "all_controls_high": high}
            records.append(record)
    return _table(
        records, "no arm has all versions of an image; run a set of `sightline controls build text-replacement`"
    )


def edit_region_table(frame: pd.DataFrame, *, reference: str | None = None, draws: int = DRAWS) -> pd.DataFrame:
    """Is the one substituted character kept? Accuracy and glyph coverage per arm, and its gain over every control.

    ``reference`` names the arm that the others are compared with; by default each arm is compared with Random and Grid.
    """
    glyphs = plain_rows(frame[frame["kind"] == "edit_region"])
    records: list[Record] = []
    for model, rows in by_model(glyphs):
        arms = {str(arm): indexed(part, str(arm)) for arm, part in rows.groupby("plain_arm", sort=False)}
        usual = [arm for arm, part in arms.items() if part["selector"].iloc[0] in ("random", "grid")]
        for arm, part in arms.items():
            record = {"model": model, "arm": arm, **rates(part)}
            others = [other for other in ([reference] if reference else usual) if other != arm and other in arms]
            for other in others:
                shared = part.index.intersection(arms[other].index)
                gain = part.loc[shared, "ecr"].astype(float) - arms[other].loc[shared, "ecr"].astype(float)
                interval = mean_interval(gain, part.loc[shared, "image_id"], draws)
                records.append({**record, "against": other, **spread("ecr_gain", interval)})
            if not others:
                records.append(record)
    return _table(
        records, "no edit-region rows; run the edit_region.jsonl of `sightline controls build text-replacement`"
    )


def _table(records: list[Record], missing: str) -> pd.DataFrame:
    if not records:
        raise SightlineError(missing)
    return pd.DataFrame(records)
