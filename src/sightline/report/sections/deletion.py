"""The evidence taken out of the mask and put back, kept alone, or grayed in the image: does the answer follow?"""

from __future__ import annotations

import math

import pandas as pd

from sightline.analysis.comparison import (
    OF_ANSWERS,
    Record,
    arm_rates,
    by_model,
    clustered_mean,
    compare_support,
    indexed,
    interval_columns,
    table_of,
    views_of,
)
from sightline.core.probe import ORIGINAL
from sightline.core.table import Table
from sightline.interventions import families
from sightline.report.columns import amount, build_table, collect, first_choice, has, has_selectors, share, signed, top
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker, any_run_has
from sightline.rows.source import Source
from sightline.statistics.arm_rows import UNCHANGED, plain_rows
from sightline.statistics.bootstrap import DRAWS
from sightline.statistics.intervals import Estimate

VARIANTS = {"selected": "as selected", "remove_evidence": "evidence removed"}


@SECTIONS.register("deletion")
class Deletion(SectionMaker):
    id = "deletion"
    title = "Deletion"
    order = 110
    in_overview = True
    lead = "Tokens of the evidence taken out of the prefix and put back: does the answer follow?"
    needs = (
        any_run_has(has("intervention", "remove_evidence")),
        any_run_has(has_selectors("evidence_only", "anti_evidence")),
    )

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: deletion_table(context.source, context.draws))
        section.add(lambda: logit_drop_table(context.source, context.draws))


def deletion_frame(frame: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
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
            before, after = (arm_rates(variants[name])["accuracy"] for name in (UNCHANGED, "remove_evidence"))
            for name in (UNCHANGED, *map(str, families()["deletion"])):
                if name not in variants:
                    continue
                part = variants[name]
                shared = part.index.intersection(selected.index)
                change = part.loc[shared, "correct"].astype(float) - selected.loc[shared, "correct"].astype(float)
                measured = arm_rates(part)
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


def deletion_table(source: Source, draws: int) -> Table:
    """What removing the evidence from a mask costs, and how much of that each restoration brings back."""
    frame = collect(source, has("intervention", "remove_evidence"), lambda run: deletion_frame(run.rows, draws=draws))
    sentence = _deletion_sentence(frame)
    frame["variant"] = frame["variant"].map(_variant)
    return build_table("deletion", frame, source, sentence=sentence)


def _variant(name: str) -> str:
    kind, _, part = name.partition("=")
    if not part:
        return VARIANTS.get(name, name)
    what = {"restore_evidence": "evidence back", "restore_random": "other tokens instead"}.get(kind, kind)
    return f"{what}, {100 * float(part):.0f}%"


def _deletion_sentence(frame: pd.DataFrame) -> str:
    removed = frame[frame["variant"] == "remove_evidence"]
    falls = int((removed["change_high"] < 0).sum())
    line = top(removed, -removed["change"])
    arm, change = line["arm"], signed(line, "change")
    back = _brought_back(frame, arm) if line["change"] < 0 else ""
    if len(removed) == 1:
        loses = "loses accuracy" if falls else "loses no accuracy beyond the interval"
        return f"{arm} {loses} when the evidence is removed: {change}{back}."
    count = f"{falls or 'None'} of {len(removed)} arms {'lose' if falls > 1 else 'loses'}"
    which = "largest loss" if line["change"] < 0 else "least favourable change"
    return (
        f"{count} accuracy beyond the interval when the evidence is removed; the {which} is that of {arm}, "
        f"{change}{back}."
    )


def _brought_back(frame: pd.DataFrame, arm: str) -> str:
    """How much of an arm's loss the evidence and as many other tokens restore; "" where the run does not say."""
    own = frame[frame["arm"] == arm].set_index("variant")["recovery"]
    back = [float(own.get(f"{kind}=1.0", math.nan)) for kind in ("restore_evidence", "restore_random")]
    if not all(math.isfinite(value) for value in back):
        return ""
    return f", of which the evidence itself brings back {share(back[0])} and as many other tokens {share(back[1])}"


def logit_drop_frame(frame: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
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


def logit_drop_table(source: Source, draws: int) -> Table:
    """Target support with the evidence kept, removed and pruned, by label."""
    frame = collect(
        source,
        has_selectors("evidence_only", "anti_evidence"),
        lambda run: logit_drop_frame(run.rows, draws=draws),
        arms=("left", "right"),
    )
    oracle = frame["left"].str.contains("evidence_only") & frame["right"].str.contains("anti_evidence")
    line = frame[oracle].iloc[0]
    sentence = (
        f"At budget {line['budget']}, keeping the evidence instead of removing it changes target support by "
        f"{signed(line, 'pos_support_diff')} on positives and {signed(line, 'neg_support_diff')} on negatives."
    )
    return build_table("logit_drop", frame, sentence=sentence)


GRAYED = ("evidence_masked", "random_masked")


@SECTIONS.register("occlusion")
class Occlusion(SectionMaker):
    id = "occlusion"
    title = "Occlusion"
    order = 120
    in_overview = True
    lead = "The evidence grayed in the image itself, against as large a box elsewhere."
    needs = (any_run_has(has("view", *GRAYED)),)

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: occlusion_table(context.source, context.draws))


def occlusion_frame(frame: pd.DataFrame, *, draws: int = DRAWS) -> pd.DataFrame:
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


def occlusion_table(source: Source, draws: int) -> Table:
    """Target support on the original image, with the evidence grayed, and with as large a box grayed elsewhere."""

    frame = collect(source, has("view", *GRAYED), lambda run: occlusion_frame(run.rows, draws=draws))
    arm = first_choice(source, frame)
    own = frame[(frame["arm"] == arm) & (frame["right"] == "evidence grayed")].set_index("left")
    taken, beyond = (own.loc[left] for left in ("original", "other box grayed"))
    changes = "lowers" if taken["pos_support_diff"] >= 0 else "raises"
    ends = "lower" if beyond["pos_support_diff"] >= 0 else "higher"
    sentence = (
        f"On positives, graying the evidence {changes} the target support of {arm} by "
        f"{amount(taken, 'pos_support_diff')}, which leaves it {amount(beyond, 'pos_support_diff')} {ends} than "
        "graying another box does."
    )
    frame["compared"] = frame["left"] + " − " + frame["right"]
    return build_table("occlusion", frame, sentence=sentence)
