"""The same tokens with renumbered and with original positions."""

from __future__ import annotations

import numpy as np
import pandas as pd

from sightline.analysis.comparison import Record, by_model, held_threshold, indexed, margins_of, table_of
from sightline.core.probe import ORIGINAL
from sightline.core.table import Table
from sightline.probes.probe_file import hash_side
from sightline.report.columns import build_table, collect, has, top
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker, any_run_has
from sightline.rows.source import Source, with_masks
from sightline.statistics.arm_rows import UNCHANGED
from sightline.statistics.metrics import auroc
from sightline.statistics.thresholds import accuracy_optimal, evaluate, flips, predict, shown

THRESHOLDS = {"own thresholds": "own", "compact threshold": "compact's"}


@SECTIONS.register("positions")
class Positions(SectionMaker):
    id = "positions"
    title = "Positions"
    order = 150
    lead = "The same tokens with renumbered and with original positions."
    needs = (any_run_has(has("intervention", "swap_positions")),)

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: positions_table(context.source))


Pair = tuple[pd.DataFrame, pd.DataFrame]
"""The rows of one arm with compact and with preserved positions: the same probes in the same order."""


def positions_frame(frame: pd.DataFrame, *, development: pd.DataFrame | None = None) -> pd.DataFrame:
    """The same masks with compact and with preserved positions: as answered, at own thresholds, at the compact one.

    ``raw`` is at the threshold of the rows' own answers, 0 unless another was applied. The others are chosen on
    ``development`` rows, where those have the arm under both policies, and judged on all of ``frame``; or else on the
    development side of the image-hash split and judged on the other. A comparison whose masks differ between the
    policies is none; ``mask_mismatches`` counts them.
    """
    elsewhere = {} if development is None else _both_policies(development)
    records: list[Record] = []
    for (model, arm), pair in _both_policies(frame).items():
        found = _compare_policies(pair, elsewhere.get((model, arm)))
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


def _compare_policies(pair: Pair, elsewhere: Pair | None) -> list[Record]:
    compact, preserve = pair
    label = (compact["label"] == "yes").to_numpy()
    margins = {"compact": margins_of(compact).to_numpy(), "preserve": margins_of(preserve).to_numpy()}
    different = int((compact["kept_mask"] != preserve["kept_mask"]).sum()) if "kept_mask" in compact else 0
    dev = np.array([hash_side(str(image)) == "dev" for image in compact["image_id"]])
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


def positions_table(source: Source) -> Table:
    """The same masks under both position policies."""
    frame = collect(
        source,
        has("intervention", "swap_positions"),
        lambda run: positions_frame(with_masks(run, run.rows), development=source.development_rows(run)),
    )
    raw = frame[frame["comparison"] == "raw"]
    line = top(raw, raw["flips"] / raw["n"])
    sentence = (
        f"With the same mask, {source.at}, the position policy alone turns {raw['flips'].sum()} of {raw['n'].sum()} "
        f"answers, most for {line['arm']}: {line['flips']} of {line['n']}, {line['no_to_yes']} to yes and "
        f"{line['yes_to_no']} to no from compact to preserve."
    )
    given = frame["threshold_compact"].map(shown)
    frame["comparison"] = frame["comparison"].map(THRESHOLDS).fillna(given)
    different = int(raw["mask_mismatches"].sum())
    if different:
        sentence += f" {different} of the masks differ between the policies: their rows compare more than positions."
    return build_table("positions", frame, sentence=sentence)
