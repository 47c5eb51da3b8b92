"""Tables of control sets and box sources: gray and wrong images, painted text, what selectors were shown."""

from __future__ import annotations

import pandas as pd

from sightline.analysis import intervention_tables as computed
from sightline.analysis.outcomes import lexically_plausible
from sightline.report.by_run import collect, first_choice, has_kind, signed, top
from sightline.report.source import Audited, Source
from sightline.report.table import Column, Table, format_range, format_value

WRONG = "image_mismatch_seed"
EVERY, PLAUSIBLE = "all", "plausible decoy"
PAINTED = tuple(f"{version}_{asked}" for version in ("replacement", "sham", "erase") for asked in ("source", "target"))


def image_dependence_table(source: Source, draws: int) -> Table | None:
    """The same questions about the matching image, a gray one and wrong ones, over all images and by stratum.

    Controls come from the run itself, or from runs of control sets over the same weights given beside it.
    """

    def pooled(run: Audited) -> pd.DataFrame:
        own = [run.rows]
        for control in source.controls:
            if control.setting == run.setting:
                own.append(control.rows[~control.rows["view"].isin(set(run.rows["view"]))])
        return pd.concat(own, ignore_index=True) if len(own) > 1 else own[0]

    def make(run: Audited) -> pd.DataFrame:
        rows = pooled(run)
        made = computed.image_dependence_table(rows, draws=draws).assign(stratum=EVERY)
        plausible = set().union(*(lexically_plausible(list(one.run.probes)) for one in (run, *source.controls)))
        if not plausible & set(rows["image_id"]):
            return made
        part = computed.image_dependence_table(rows, images=plausible, draws=draws).assign(stratum=PLAUSIBLE)
        return pd.concat([made, part], ignore_index=True)

    controlled = [run for run in source.runs if _views(pooled(run))]
    found = collect(Source(controlled, []), lambda rows: True, make)
    if found is None:
        return None
    frame, left_out = found
    reading = _image_reading(source, frame)
    frame["condition"] = frame["condition"].map(_condition)
    narrow = "stratum" if frame["stratum"].nunique() > 1 else ""
    columns = [
        Column("arm", "Arm"),
        Column("stratum", "Images"),
        Column("condition", "Shown"),
        Column("n", "Probes", "count"),
        Column("accuracy", "Accuracy", "score"),
        Column("delta_accuracy", "Change", "signed", interval=True, help="Accuracy minus that on the matching image."),
        Column("positive_accuracy", "Pos. acc.", "score"),
        Column("hfpr", "hFPR", "score"),
        Column("yes_rate", "Yes rate", "score"),
        Column("auroc", "AUROC", "score", interval=True),
        Column("margin_gap", "Margin gap", "signed", help="Mean margin of the yes probe minus that of the no probe."),
        Column("margin_win_rate", "Gap > 0", "percent", help="Images whose yes probe has the larger margin."),
    ]
    caption = (
        "Questions and labels stay, the image changes; all at t = 0. What stays right without the matching image was "
        "never read off it. Wrong images show none of the words asked for; their mean is over seeds. A decoy "
        "is plausible when it is a word of some other image."
    )
    return Table(
        "image_dependence", "Image dependence", caption + left_out, columns, frame, filter=narrow, reading=reading
    )


def _views(rows: pd.DataFrame) -> set[str]:
    return {str(view) for view in rows["view"].unique() if view == "blank" or str(view).startswith(WRONG)}


def _condition(name: str) -> str:
    if name.startswith(WRONG):
        return f"wrong, seed {name.removeprefix(WRONG)}"
    return {"matching image": "matching", "blank": "gray", "wrong images": "wrong, mean"}.get(name, name)


def _image_reading(source: Source, frame: pd.DataFrame) -> str:
    arm = first_choice(source, frame)
    own = frame[(frame["arm"] == arm) & (frame["stratum"] == EVERY)].set_index("condition")
    parts = []
    if "blank" in own.index:
        parts.append(f"gray ones change it by {signed(own.loc['blank'], 'delta_accuracy')}")
    wrong = [name for name in own.index if str(name).startswith(WRONG)]
    if len(wrong) == 1:
        parts.append(f"wrong ones change it by {signed(own.loc[wrong[0]], 'delta_accuracy')}")
    elif wrong:
        changes = own.loc[wrong, "delta_accuracy"]
        spread = format_range(changes.min(), changes.max(), "signed")
        parts.append(f"wrong ones by {spread} over {len(wrong)} seeds")
    matched = format_value(own.loc["matching image", "accuracy"], "score")
    return f"Accuracy of {arm} is {matched} on the matching images; {', '.join(parts)}."


def box_source_table(source: Source) -> Table | None:
    """Every arm under every box source, runs over the same probes and weights together."""
    groups: dict[tuple[str, str], list[Audited]] = {}
    for audited in source.runs:
        groups.setdefault((audited.setting, str(audited.run.manifest.get("probe_digest"))), []).append(audited)
    shown = [runs for runs in groups.values() if any(set(run.frame["box_source"]) - {"annotation"} for run in runs)]
    if not shown:
        return None
    frames = []
    for runs in shown:
        # Two runs may hold the same arm with the same boxes: it counts once.
        rows = pd.concat([run.rows for run in runs], ignore_index=True)
        rows = rows.drop_duplicates(["arm", "box_source", "intervention", "view", "probe_id"])
        quality = {str(run.run.manifest.get("box_source")): run.run.manifest.get("boxes") or {} for run in runs}
        made = computed.box_source_table(rows, quality)
        frames.append(made.assign(arm=made["model"] + " · " + made["arm"]) if len(shown) > 1 else made)
    frame = pd.concat(frames, ignore_index=True)
    order = {arm: place for place, arm in enumerate(frame["arm"].unique())}
    several = frame.groupby("arm")["box_source"].transform("nunique") > 1
    frame = frame[several] if several.any() else frame
    frame = frame.sort_values("arm", key=lambda arms: arms.map(order), kind="stable", ignore_index=True)
    columns = [
        Column("arm", "Arm"),
        Column("box_source", "Boxes"),
        Column("n", "Probes", "count"),
        Column("accuracy", "Accuracy", "score"),
        Column("hfpr", "hFPR", "score"),
        Column("pos_ecr", "PosECR", "score"),
        Column("neg_src", "NegSRC", "score"),
        Column("missing_rate", "Missing", "percent", help="Regions that no shown box touches."),
        Column("best_iou", "Best IoU", "score", help="Mean over regions of the IoU with the box that fits best."),
        Column("boxes_per_probe", "Boxes a probe", "number"),
        Column("boxes_ms", "Detector ms", "number", help="Per image, for arms that read detected boxes."),
    ]
    caption = (
        "Coverage is that of the annotated regions, whatever boxes the selector saw; arms that read no boxes are the "
        "same under every source; arms that saw a single source are left out where others saw more."
    )
    return Table("box_sources", "Box sources", caption, columns, frame, reading=_box_reading(frame))


def _box_reading(frame: pd.DataFrame) -> str:
    base = frame[frame["box_source"] == "annotation"].set_index("arm")
    others = frame[(frame["box_source"] != "annotation") & frame["arm"].isin(base.index)].copy()
    if others.empty:
        return "No run over the same probes saw the annotated boxes, so there is nothing to compare these sources with."
    others["loss"] = base["pos_ecr"].loc[others["arm"]].to_numpy() - others["pos_ecr"].to_numpy()
    if not others["loss"].abs().max() > 0:
        return "Coverage is the same under every box source."
    line = top(others, others["loss"].abs())
    before = base.loc[line["arm"]]
    now, then = (
        f"{format_value(found['pos_ecr'], 'score')} and accuracy {format_value(found['accuracy'], 'score')}"
        for found in (line, before)
    )
    return (
        f"The box source moves {line['arm']} most: PosECR is {now} with {line['box_source']} boxes, {then} with the "
        "annotation."
    )


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
        Column("arm", "Arm"),
        Column("images", "Images", "count"),
        Column("original", "Original", "percent", help="Word confirmed and decoy denied."),
        Column("replacement", "Replacement", "percent", help="Decoy confirmed and word denied."),
        Column("sham", "Sham", "percent", help="As on the original, after painting the same word again."),
        Column("erase", "Erasure", "percent", help="Both denied."),
        Column("semantic_switch", "Switch", "percent", help="Original and replacement both right."),
        Column("all_controls", "All four", "percent", interval=True, help="Wilson's interval."),
    ]
    caption = "Share of images on which both questions are answered right, at t = 0, for each version of the image."
    return Table("text_replacement", "Text replacement", caption + left_out, columns, frame, reading=reading)


def edit_region_table(source: Source, draws: int) -> Table | None:
    """Coverage of the one substituted character, and its gain over Random and Grid."""
    found = collect(
        source,
        has_kind("edit_region"),
        lambda run: computed.edit_region_table(run.rows, draws=draws),
        ("arm", "against"),
    )
    if found is None:
        return None
    frame, left_out = found
    frame = frame.reindex(columns=list(dict.fromkeys([*frame.columns, "against", "ecr_gain"])))
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
        Column("arm", "Arm"),
        Column("against", "Against"),
        Column("n", "Probes", "count"),
        Column("keep", "Keep", "score"),
        Column("accuracy", "Accuracy", "score"),
        Column("ecr", "Glyph ECR", "score"),
        Column("center_recall", "Centre kept", "score"),
        Column("ecr_gain", "ECR gain", "signed", interval=True),
    ]
    caption = "The only region is the character that was substituted; selectors never see it."
    return Table("edit_region", "Edit regions", caption + left_out, columns, frame, reading=reading)
