"""Another word painted where the evidence stood, and coverage of the substituted character."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

import numpy as np
import pandas as pd

from sightline.analysis.comparison import (
    OF_ANSWERS,
    Record,
    answered_right,
    arm_rates,
    by_model,
    clustered_means,
    indexed,
    interval_columns,
    table_of,
    threshold_of,
)
from sightline.analysis.outcomes import extra
from sightline.core.table import Table, format_range, format_value
from sightline.report.columns import build_table, collect, has, signed, top
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker, any_run_has
from sightline.rows.picture import stored_geometry
from sightline.rows.run import Run
from sightline.rows.source import Source
from sightline.statistics.arm_rows import plain_rows
from sightline.statistics.correct_positives import has_little_evidence, has_no_evidence
from sightline.statistics.intervals import wilson
from sightline.statistics.paired import mcnemar

PAINTED = tuple(f"{version}_{asked}" for version in ("replacement", "sham", "erase") for asked in ("source", "target"))
EDIT_REGION = "edit_region"
"""The kind of a probe whose only region is the substituted character."""


@SECTIONS.register("text-replacement")
class TextEdits(SectionMaker):
    id = "text-replacement"
    title = "Text replacement"
    order = 140
    lead = "Another word painted where the evidence stood: does the answer change with it?"
    needs = (any_run_has(has("kind", *PAINTED, EDIT_REGION)),)

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: text_replacement_table(context.source))
        section.add(lambda: models_table(context.source))
        section.add(lambda: edit_region_table(context.source, context.draws))


VERSIONS = ("original", "replacement", "sham", "erase")
KINDS = [f"{version}_{asked}" for version in VERSIONS for asked in ("source", "target")]

Thresholds = float | Mapping[str, float] | None
"""One for all models, or one per model, 0 for a model that is not named; None for the answers that the rows hold."""


def text_replacement_frame(frame: pd.DataFrame, *, threshold: Thresholds = None) -> pd.DataFrame:
    """The four-control test: both questions answered right on the original, the replacement, the sham, the erasure.

    A semantic switch is original and replacement; ``all_controls`` all four, with Wilson's interval. Answers are those
    that the rows hold, or at a ``threshold`` for all models or per model.
    """
    records: list[Record] = []
    for model, arm, passed in _passed(frame, threshold):
        every = passed.all(axis=1)
        low, high = wilson(int(every.sum()), len(every))
        record: Record = {"model": model, "arm": arm, "images": len(passed)}
        record |= {version: float(passed[version].mean()) for version in VERSIONS}
        record["semantic_switch"] = float((passed["original"] & passed["replacement"]).mean())
        record |= {"all_controls": float(every.mean()), "all_controls_low": low, "all_controls_high": high}
        records.append(record)
    return table_of(
        records, "no arm has all versions of an image; run a set of `sightline controls build text-replacement`"
    )


def text_replacement_models_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Two models under the same arm on the same images: exact McNemar test of passing all four controls.

    ``only_first`` images pass under the first model alone, ``only_second`` under the second; images that one of the
    models was not asked about in full are left out.
    """
    strict: dict[str, dict[str, pd.Series[bool]]] = {}
    for model, arm, passed in _passed(frame, None):
        strict.setdefault(arm, {})[model] = passed.all(axis=1)
    records: list[Record] = []
    for arm, models in strict.items():
        for first, second in combinations(models, 2):
            both = models[first].index.intersection(models[second].index)
            if both.empty:
                continue
            left, right = models[first].loc[both], models[second].loc[both]
            test = mcnemar(left.to_numpy(), right.to_numpy())
            records.append(
                {
                    "arm": arm, "first": first, "second": second, "images": len(both),
                    "first_rate": float(left.mean()), "second_rate": float(right.mean()),
                    "only_first": test.first_only, "only_second": test.second_only, "mcnemar_p": test.p,
                }
            )  # fmt: skip
    return table_of(records, "no two models were asked about the same replaced words under the same arm")


def _passed(frame: pd.DataFrame, threshold: Thresholds) -> Iterator[tuple[str, str, pd.DataFrame]]:
    """Per model and arm: images x versions, True where both questions are answered right; complete images only."""
    for model, rows in by_model(frame[frame["kind"].isin(KINDS)]):
        cut = threshold_of(model, threshold)
        for arm, own in rows.groupby("plain_arm", sort=False):
            right = own.assign(right=answered_right(own, cut)).pivot_table(
                index="image_id", columns="kind", values="right"
            )
            if set(KINDS) <= set(right.columns):
                complete = right.dropna(subset=KINDS) == 1.0
                pairs = {v: complete[f"{v}_source"] & complete[f"{v}_target"] for v in VERSIONS}
                yield model, str(arm), pd.DataFrame(pairs)


def text_replacement_table(source: Source) -> Table:
    """Both questions answered right on the original, the replacement, the sham and the erasure."""
    frame = collect(source, has("kind", *PAINTED), lambda run: text_replacement_frame(run.rows))
    line = top(frame, frame["all_controls"])
    interval = format_range(line["all_controls_low"], line["all_controls_high"], "percent")
    sentence = (
        f"At best, {line['arm']} follows the painted word through all four versions on "
        f"{format_value(line['all_controls'], 'percent')} ({interval}) of {line['images']} images, and "
        f"switches with it on {format_value(line['semantic_switch'], 'percent')}."
    )
    return build_table("text_replacement", frame, sentence=sentence, at=source.at)


def models_table(source: Source) -> Table | None:
    """Runs over the same probe set, two at a time: which model passes all four controls on more images?"""
    asked = [
        run.rows.assign(model=run.name)[run.rows["kind"].isin(KINDS)]
        for run in source.runs
        if has("kind", *PAINTED)(run.rows)
    ]
    if len(asked) < 2 or not source.same_probes:
        return None
    frame = text_replacement_models_frame(pd.concat(asked, ignore_index=True))
    line = frame.iloc[0]
    better, worse = sorted((line["first_rate"], line["second_rate"]), reverse=True)
    sentence = (
        f"Under {line['arm']}, {line['first']} and {line['second']} differ on "
        f"{line['only_first'] + line['only_second']} of {line['images']} images: "
        f"{format_value(better, 'percent')} against {format_value(worse, 'percent')} pass all four "
        f"(exact McNemar p = {format_value(line['mcnemar_p'], 'p')})."
    )
    return build_table("text_replacement_models", frame, sentence=sentence)


EDIT_DRAWS = 20_000
USUAL = ("random", "grid")
"""Selectors that every other arm is compared with."""

ROUNDING = 1e-6
"""Stored cells are float32: a word that is half covered counts as half covered, whatever its last digits say."""


def word_coverage(run: Run) -> pd.Series[float]:
    """(arm, probe id) -> coverage of the whole word by the mask of that row, by lineage as column ``ecr`` is.

    The control builder keeps the word's box apart from the region, so that neither selectors nor ``ecr`` see it.
    """
    kinds = run.rows.column("kind").to_numpy(zero_copy_only=False)
    rows = run.rows.take(np.flatnonzero(kinds == EDIT_REGION))
    words = {str(probe["id"]): extra(probe).get("word_region") for probe in run.probes}
    measured = stored_geometry(rows, run.images, {probe: [word] for probe, word in words.items() if word})
    index = pd.MultiIndex.from_arrays([rows.column(name).to_pylist() for name in ("arm", "probe_id")])
    return pd.Series([np.nan if one is None else one.ecr for one in measured], index, dtype=float, name="word_ecr")


def edit_region_frame(
    frame: pd.DataFrame, words: pd.Series[float] | None = None, *, draws: int = EDIT_DRAWS
) -> pd.DataFrame:
    """Accuracy and coverage of the substituted character per arm, and what each arm gains over every control.

    All probes are positives: they ask for the word that is painted there. ``words`` is ``word_coverage(run)``; with it
    come ``word_ecr`` and ``word_kept_edit_lost``, the share with at least half of the word and less than half of the
    character. ``edit_gone`` is the share with nothing of the character. Gains are differences paired by image, over
    Random and Grid, of the same budget where rows say their budget.
    """
    glyphs = plain_rows(frame[frame["kind"] == EDIT_REGION])
    if words is not None:
        glyphs = glyphs.assign(
            word_ecr=words.reindex(pd.MultiIndex.from_frame(glyphs[["plain_arm", "probe_id"]])).to_numpy()
        )
    records: list[Record] = []
    for model, rows in by_model(glyphs):
        arms = {str(arm): indexed(part, str(arm)) for arm, part in rows.groupby("plain_arm", sort=False)}
        for arm, part in arms.items():
            record: Record = {"model": model, "arm": arm, **arm_rates(part)}
            record["edit_gone"] = float(has_no_evidence(part["ecr"]).mean())
            if "word_ecr" in part:
                lost = has_little_evidence(part["ecr"]) & ~has_little_evidence(part["word_ecr"] + ROUNDING)
                record |= {"word_ecr": float(part["word_ecr"].mean()), "word_kept_edit_lost": float(lost.mean())}
            others = [other for other in arms if _is_control_of(arms[other], part)]
            gains = [_gains(part, arms[other], draws) | {"against": other} for other in others if other != arm]
            records += [record | gain for gain in gains] or [record]
    return table_of(
        records, "no edit-region rows; run the edit_region.jsonl of `sightline controls build text-replacement`"
    )


def _is_control_of(control: pd.DataFrame, part: pd.DataFrame) -> bool:
    if control["selector"].iloc[0] not in USUAL:
        return False
    pruned = "budget" in part and part["selector"].iloc[0] != "full"
    return not pruned or control["budget"].iloc[0] == part["budget"].iloc[0]


def _gains(part: pd.DataFrame, other: pd.DataFrame, draws: int) -> Record:
    """The arm minus another, on the probes that both have, all from the same draws of images."""
    shared = part.index.intersection(other.index)
    columns = {"accuracy_gain": "correct", "ecr_gain": "ecr", "word_ecr_gain": "word_ecr"}
    columns = {gain: column for gain, column in columns.items() if column in part}
    left, right = (side.loc[shared, list(columns.values())].astype(float).to_numpy() for side in (part, other))
    record: Record = {}
    images = part.loc[shared, "image_id"]
    for gain, found in zip(columns, clustered_means(left - right, images, draws, OF_ANSWERS), strict=True):
        record |= interval_columns(gain, found)
    return record


def edit_region_table(source: Source, draws: int) -> Table:
    """Coverage of the one substituted character and of its word, and the gain over Random and Grid."""
    frame = collect(
        source,
        has("kind", EDIT_REGION),
        lambda run: edit_region_frame(run.rows, word_coverage(run.run), draws=draws),
        ("arm", "against"),
    )
    frame = frame.reindex(columns=list(dict.fromkeys([*frame.columns, "against", "accuracy_gain", "ecr_gain"])))
    compared = frame.dropna(subset=["ecr_gain"])
    pruned = compared[(compared["keep"] < 1.0) & ~compared["arm"].isin(compared["against"])]
    if pruned.empty:
        sentence = "No Random or Grid arm at the same budget: coverage of the glyph has nothing to be compared with."
    else:
        line = top(pruned, pruned["ecr_gain"])
        sentence = (
            f"{line['arm']} keeps {format_value(line['ecr'], 'percent')} of the substituted character: "
            f"{signed(line, 'ecr_gain')} against {line['against']}."
        )
    return build_table("edit_region", frame, source, sentence=sentence, draws=f"{draws:,}")
