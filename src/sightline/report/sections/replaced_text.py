"""Another word painted where the evidence stood, and coverage of the substituted character."""

from __future__ import annotations

import pandas as pd

from sightline.analysis import replaced_text as computed
from sightline.analysis import replaced_text as edited
from sightline.core.table import Table, TableColumn, format_range, format_value
from sightline.report.columns import collect, has_kind, metric_column, signed, top
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker
from sightline.rows.source import Source

PAINTED = tuple(f"{version}_{asked}" for version in ("replacement", "sham", "erase") for asked in ("source", "target"))


@SECTIONS.register("text-replacement")
class TextEdits(SectionMaker):
    id = "text-replacement"
    title = "Text replacement"
    order = 140
    lead = "Another word painted where the evidence stood: does the answer change with it?"

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: text_replacement_table(context.source))
        section.add(lambda: models_table(context.source))
        section.add(lambda: edit_region_table(context.source, context.draws))


def text_replacement_table(source: Source) -> Table | None:
    """Both questions answered right on the original, the replacement, the sham and the erasure."""
    found = collect(source, has_kind(*PAINTED), lambda run: computed.text_replacement_table(run.rows))
    if found is None:
        return None
    frame, left_out = found
    line = top(frame, frame["all_controls"])
    interval = format_range(line["all_controls_low"], line["all_controls_high"], "percent")
    reading = (
        f"At best, {line['arm']} follows the painted word through all four versions on "
        f"{format_value(line['all_controls'], 'percent')} ({interval}) of {line['images']} images, and "
        f"switches with it on {format_value(line['semantic_switch'], 'percent')}."
    )
    columns = [
        TableColumn("arm", "Arm"),
        TableColumn("images", "Images", "count"),
        TableColumn("original", "Original", "percent", help="Word confirmed and decoy denied."),
        TableColumn("replacement", "Replacement", "percent", help="Decoy confirmed and word denied."),
        TableColumn("sham", "Sham", "percent", help="As on the original, after painting the same word again."),
        TableColumn("erase", "Erasure", "percent", help="Both denied."),
        TableColumn("semantic_switch", "Switch", "percent", help="Original and replacement both right."),
        TableColumn("all_controls", "All four", "percent", interval=True, help="Wilson's interval."),
    ]
    caption = f"Share of images on which both questions are answered right, {source.at}, for each version of the image."
    return Table("text_replacement", "Text replacement", caption + left_out, columns, frame, reading=reading)


def models_table(source: Source) -> Table | None:
    """Runs over the same probe set, two at a time: which model passes all four controls on more images?"""
    asked = [
        run.rows.assign(model=run.name)[run.rows["kind"].isin(computed.KINDS)]
        for run in source.runs
        if has_kind(*PAINTED)(run.rows)
    ]
    if len(asked) < 2 or not source.same_probes:
        return None
    frame = computed.text_replacement_models_table(pd.concat(asked, ignore_index=True))
    line = frame.iloc[0]
    better, worse = sorted((line["first_rate"], line["second_rate"]), reverse=True)
    reading = (
        f"Under {line['arm']}, {line['first']} and {line['second']} differ on "
        f"{line['only_first'] + line['only_second']} of {line['images']} images: "
        f"{format_value(better, 'percent')} against {format_value(worse, 'percent')} pass all four "
        f"(exact McNemar p = {format_value(line['mcnemar_p'], 'p')})."
    )
    columns = [
        TableColumn("arm", "Arm"),
        TableColumn("first", "First"),
        TableColumn("second", "Second"),
        TableColumn("images", "Images", "count"),
        TableColumn("first_rate", "All four, first", "percent"),
        TableColumn("second_rate", "All four, second", "percent"),
        TableColumn("only_first", "Only first", "count", help="Images that only the first model passes."),
        TableColumn("only_second", "Only second", "count", help="Images that only the second model passes."),
        TableColumn("mcnemar_p", "McNemar p", "p", help="Exact, two-sided; takes images as independent."),
    ]
    caption = "The strict rate, all four versions right, of two models on the same images."
    return Table("text_replacement_models", "Text replacement between models", caption, columns, frame, reading=reading)


def edit_region_table(source: Source, draws: int) -> Table | None:
    """Coverage of the one substituted character and of its word, and the gain over Random and Grid."""
    found = collect(
        source,
        has_kind(edited.EDIT_REGION),
        lambda run: edited.edit_region_table(run.rows, edited.word_coverage(run.run), draws=draws),
        ("arm", "against"),
    )
    if found is None:
        return None
    frame, left_out = found
    frame = frame.reindex(columns=list(dict.fromkeys([*frame.columns, "against", "accuracy_gain", "ecr_gain"])))
    compared = frame.dropna(subset=["ecr_gain"])
    pruned = compared[(compared["keep"] < 1.0) & ~compared["arm"].isin(compared["against"])]
    if pruned.empty:
        reading = "No Random or Grid arm at the same budget: coverage of the glyph has nothing to be compared with."
    else:
        line = top(pruned, pruned["ecr_gain"])
        reading = (
            f"{line['arm']} keeps {format_value(line['ecr'], 'percent')} of the substituted character: "
            f"{signed(line, 'ecr_gain')} against {line['against']}."
        )
    columns = [
        TableColumn("arm", "Arm"),
        TableColumn("n", "Probes", "count"),
        *map(metric_column, ("keep",)),
        metric_column("positive_accuracy", "accuracy"),
        TableColumn("word_ecr", "Word ECR", "score", help="Coverage of the whole word by the same mask."),
        TableColumn("ecr", "Edit ECR", "score", help="Coverage of the substituted character."),
        TableColumn("edit_gone", "Edit ECR = 0", "percent"),
        TableColumn("word_kept_edit_lost", "Word ≥ 0.5, edit < 0.5", "percent"),
        TableColumn("center_recall", "Centre kept", "score"),
        TableColumn("against", "Against"),
        TableColumn("accuracy_gain", "Accuracy gain", "signed", interval=True),
        TableColumn("ecr_gain", "Edit ECR gain", "signed", interval=True),
    ]
    caption = (
        "The only region is the character that was substituted; selectors never see it. Every probe asks for the "
        f"painted word, so all are positives. Gains are paired by image, intervals from {draws:,} draws."
    ) + source.answers_at
    return Table("edit_region", "Edit regions", caption + left_out, columns, frame, reading=reading)
