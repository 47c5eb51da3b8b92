"""What interventions did, as tables: evidence removed and restored, occluded, positions swapped, scores shuffled, other
boxes, other images.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd

from sightline.analysis.comparison import (
    OF_ANSWERS,
    Record,
    answered_right,
    by_model,
    clustered_mean,
    compare_support,
    held_threshold,
    indexed,
    interval_columns,
    margins_of,
    rates,
    table_of,
    threshold_of,
    views_of,
)
from sightline.core.probe import ORIGINAL
from sightline.core.regime import NO_BOXES
from sightline.errors import SightlineError
from sightline.interventions import families
from sightline.probes.probe_file import hash_side
from sightline.statistics.arm_rows import UNCHANGED, plain_rows
from sightline.statistics.bootstrap import DRAWS, metric_interval
from sightline.statistics.intervals import Estimate
from sightline.statistics.metrics import METRICS, auroc, point, why_not
from sightline.statistics.summaries import arm_points, arm_rows, paired_differences
from sightline.statistics.thresholds import accuracy_optimal, evaluate, flips, predict

# Tokens of the evidence taken out of the mask and put back; evidence kept alone against removed.


def deletion_table(frame: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
    """What removing the evidence costs, and how much of it each restoration brings back.

    recovery = (accuracy - accuracy when removed) / (accuracy of the selection - accuracy when removed), NaN where
    removal cost nothing. ``change`` is accuracy minus the plain arm's, paired by probe.
    """
    records: list[Record] = []
    original = frame[frame["view"] == ORIGINAL]
    for model, rows in by_model(original):
        for arm, own in rows.groupby("plain_arm", sort=False):
            variants = {str(what): indexed(part, f"{arm} {what}") for what, part in own.groupby("intervention")}
            if "remove_evidence" not in variants or UNCHANGED not in variants:
                continue
            selected = variants[UNCHANGED]
            before, after = (rates(variants[name])["accuracy"] for name in (UNCHANGED, "remove_evidence"))
            for name in (UNCHANGED, *map(str, families()["deletion"])):
                if name not in variants:
                    continue
                part = variants[name]
                shared = part.index.intersection(selected.index)
                change = part.loc[shared, "correct"].astype(float) - selected.loc[shared, "correct"].astype(float)
                measured = rates(part)
                moved = clustered_mean(change, selected.loc[shared, "image_id"], draws, OF_ANSWERS)
                if name == UNCHANGED:  # 0 by construction
                    moved = Estimate(moved.value, math.nan, math.nan, kind="certain")
                records.append(
                    {
                        "model": model,
                        "arm": arm,
                        "variant": "selected" if name == UNCHANGED else name,
                        **measured,
                        "change_from_removed": measured["accuracy"] - after,
                        **interval_columns("change", moved),
                        "recovery": (measured["accuracy"] - after) / (before - after) if before != after else math.nan,
                    }
                )
    return table_of(records, "no arm has its evidence removed; run again with --interventions deletion")


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
    return table_of(records, "no budget has the arms evidence_only and anti_evidence; add both, for example at 0.3")


# The evidence grayed in the image, against as large a box elsewhere.


def occlusion_table(frame: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
    """Target support on the original, with the evidence grayed, and with as large a box grayed elsewhere."""
    names = {ORIGINAL: "original", "evidence_masked": "evidence grayed", "random_masked": "other box grayed"}
    records: list[Record] = []
    for model, rows in by_model(frame):
        for arm, own in rows.groupby("plain_arm", sort=False):
            views = views_of(own, str(arm))
            if not set(names) <= set(views):
                continue
            for left, right in (
                (ORIGINAL, "evidence_masked"),
                ("random_masked", "evidence_masked"),
                (ORIGINAL, "random_masked"),
            ):
                sides = {"left": names[left], "right": names[right]}
                records.append(
                    {"model": model, "arm": arm, **sides, **compare_support(views[left], views[right], draws)}
                )
    return table_of(records, "no arm was run on occluded images; run again with --interventions occlusion")


# The same masks with compact and with preserved positions.

Pair = tuple[pd.DataFrame, pd.DataFrame]
"""The rows of one arm with compact and with preserved positions: the same probes in the same order."""


def position_policy_table(
    frame: pd.DataFrame, *, dev_buckets: int = 5, development: pd.DataFrame | None = None
) -> pd.DataFrame:
    """The same masks with compact and with preserved positions: as answered, at own thresholds, at the compact one.

    ``raw`` is at the threshold of the rows' own answers, 0 unless another was applied. The others are chosen on
    ``development`` rows, where those have the arm under both policies, and judged on all of ``frame``; or else on the
    development side of the image-hash split and judged on the other. A comparison whose masks differ between the
    policies is none; ``mask_mismatches`` counts them.
    """
    elsewhere = {} if development is None else _both_policies(development)
    records: list[Record] = []
    for (model, arm), pair in _both_policies(frame).items():
        found = _compare_policies(pair, elsewhere.get((model, arm)), dev_buckets)
        records += [{"model": model, "arm": arm, **record} for record in found]
    return table_of(records, "no arm was run under both position policies; run again with --interventions positions")


def _both_policies(frame: pd.DataFrame) -> dict[tuple[str, str], Pair]:
    """By model and arm, for every pruning arm that was run under both."""
    told = frame["intervention"].isin((UNCHANGED, "swap_positions")) | frame["intervention"].isna()
    rows = frame[(frame["view"] == ORIGINAL) & told]
    pairs: dict[tuple[str, str], Pair] = {}
    for model, members in by_model(rows):
        for arm, own in members.groupby("plain_arm", sort=False):
            sides = {str(policy): part for policy, part in own.groupby("positions", sort=False)}
            if set(sides) != {"compact", "preserve"} or (own["selector"] == "full").all():
                continue
            compact, preserve = (indexed(sides[policy], f"{arm} {policy}") for policy in ("compact", "preserve"))
            both = compact.index.intersection(preserve.index)
            pairs[model, str(arm)] = compact.loc[both], preserve.loc[both]
    return pairs


def _compare_policies(pair: Pair, elsewhere: Pair | None, dev_buckets: int) -> list[Record]:
    compact, preserve = pair
    label = (compact["label"] == "yes").to_numpy()
    margins = {"compact": margins_of(compact).to_numpy(), "preserve": margins_of(preserve).to_numpy()}
    different = int((compact["kept_mask"] != preserve["kept_mask"]).sum()) if "kept_mask" in compact else 0
    dev = np.array([hash_side(str(image), dev_buckets) == "dev" for image in compact["image_id"]])
    judged = ~dev if elsewhere is None else np.ones(len(label), dtype=bool)
    cuts: dict[str, tuple[float, float]] = {"raw": (held_threshold(compact), held_threshold(preserve))}
    if elsewhere is not None or (dev.any() and not dev.all()):
        own = tuple(
            accuracy_optimal(side["label"] == "yes", margins_of(side)).threshold
            for side in elsewhere or (compact[dev], preserve[dev])
        )
        cuts |= {"own thresholds": (own[0], own[1]), "compact threshold": (own[0], own[0])}
    records: list[Record] = []
    for name, (first, second) in cuts.items():
        part = np.ones(len(label), dtype=bool) if name == "raw" else judged
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


# The same scores on the wrong tokens: what is left of an arm when they are shuffled, at the same budget.

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


# Every arm under every source of selector-visible boxes.


def box_source_table(frame: pd.DataFrame, quality: Mapping[str, Mapping[str, Any]] | None = None) -> pd.DataFrame:
    """Every arm under every box source; coverage is that of the annotated regions throughout.

    ``quality`` maps a box source to the ``boxes`` entry of its run's manifest: missing rate, best IoU, latency.
    """
    plain = plain_rows(frame)
    if set(plain["box_source"].dropna().unique()) <= {"annotation", NO_BOXES}:
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


# The same questions about the matching image, a gray one and wrong ones.

ENDS = ("min", "max")
RANGED = ("accuracy", "hfpr", "auroc", "delta_accuracy")
"""Columns whose range over the seeds of wrong images the report's CSV has."""


def image_dependence_table(
    frame: pd.DataFrame,
    *,
    threshold: float | Mapping[str, float] | None = None,
    images: Collection[str] | None = None,
    draws: int = DRAWS,
) -> pd.DataFrame:
    """The same questions about the matching image, a gray one and wrong ones.

    Answers are those that the rows hold, or at a ``threshold`` for all models or per model. ``images`` restricts the
    table to a stratum, for example ``outcomes.lexically_plausible(run.probes)``. The row ``wrong images`` averages over
    the seeds and has their range in ``_min`` and ``_max``. ``delta_accuracy`` is against the matching image, paired by
    image.
    """
    records: list[Record] = []
    chosen = frame if images is None else frame[frame["image_id"].isin(set(images))]
    for model, rows in by_model(chosen):
        cut = threshold_of(model, threshold)
        for arm, own in rows.groupby("plain_arm", sort=False):
            views = views_of(own, str(arm))
            controls = {v: p for v, p in views.items() if v == "blank" or v.startswith("image_mismatch_seed")}
            if ORIGINAL not in views or not controls:
                continue
            matched = views[ORIGINAL]
            lines = [{"condition": "matching image", **_image_metrics(matched, cut, draws)}]
            for view, part in controls.items():
                shared = part.index.intersection(matched.index)
                change = answered_right(part.loc[shared], cut) - answered_right(matched.loc[shared], cut)
                delta = clustered_mean(change, matched.loc[shared, "image_id"], draws, OF_ANSWERS)
                measured = _image_metrics(part, cut, draws)
                lines.append({"condition": view, **measured, **interval_columns("delta_accuracy", delta)})
            wrong = [line for line in lines if str(line["condition"]).startswith("image_mismatch_seed")]
            if len(wrong) > 1:
                names = [name for name in wrong[0] if name != "condition" and not name.endswith(("_low", "_high"))]
                seeds = {name: np.array([line[name] for line in wrong], dtype=np.float64) for name in names}
                lines.append({"condition": "wrong images", **{name: float(v.mean()) for name, v in seeds.items()}})
                lines[-1] |= {f"{name}_{end}": float(getattr(v, end)()) for name, v in seeds.items() for end in ENDS}
            at = held_threshold(matched) if cut is None else cut
            records += [{"model": model, "arm": arm, "threshold": at, **line} for line in lines]
    return table_of(
        records, "no arm was asked about gray or wrong images; run a set of `sightline controls build image-free`"
    )


def _image_metrics(rows: pd.DataFrame, threshold: float | None, draws: int) -> Record:
    has_margin = "margin" in rows
    arm = arm_rows(rows.reset_index(), threshold if has_margin else None)
    names = ("accuracy", "positive_accuracy", "negative_accuracy", "hfpr", "yes_rate", "auroc")
    record: Record = {"n": len(rows), "images": arm.n_images, **{name: point(METRICS[name], arm) for name in names}}
    record["balanced_accuracy"] = (record["positive_accuracy"] + record["negative_accuracy"]) / 2.0
    gap = _margin_gaps(rows) if has_margin else pd.Series(dtype=float)
    record |= {"margin_gap": float(gap.mean()), "margin_win_rate": float((gap > 0).mean()) if len(gap) else math.nan}
    record |= {"auroc_low": math.nan, "auroc_high": math.nan}
    if not why_not(METRICS["auroc"], arm) and arm.n_images > 1:
        found = metric_interval(arm, METRICS["auroc"], draws=draws)
        record |= {"auroc_low": found.low, "auroc_high": found.high}
    return record


def _margin_gaps(rows: pd.DataFrame) -> pd.Series[float]:
    """Per image with both labels the margin of its yes probe minus that of its no probe."""
    pairs = rows.pivot_table(index="image_id", columns="label", values="margin")
    if not {"yes", "no"} <= set(pairs.columns):
        return pd.Series(dtype=float)
    return (pairs["yes"] - pairs["no"]).dropna()
