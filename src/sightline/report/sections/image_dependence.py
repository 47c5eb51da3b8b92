"""The same questions about a gray image or somebody else's: what was never read off the image?"""

from __future__ import annotations

import pandas as pd

from sightline.analysis import interventions as computed
from sightline.analysis.outcomes import lexically_plausible
from sightline.core.table import Table, TableColumn, format_range, format_value
from sightline.report.columns import collect, first_choice, fitting_columns, metric_column, signed
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker
from sightline.rows.source import Audited, Source

WRONG = "image_mismatch_seed"
EVERY, PLAUSIBLE = "all", "plausible decoy"


@SECTIONS.register("image-dependence")
class ImageDependence(SectionMaker):
    id = "image-dependence"
    title = "Image dependence"
    order = 130
    in_overview = True
    lead = "The same questions about a gray image or somebody else's: what was never read off the image?"

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: image_dependence_table(context.source, context.draws))


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
        marked = (one.run.each_probe("lexically_plausible") for one in (run, *source.controls))
        same = run.run.same_images
        plausible = {same.get(name, name) for name in set[str]().union(*map(lexically_plausible, marked))}
        if not plausible & set(rows["image_id"].unique()):
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
        TableColumn("arm", "Arm"),
        TableColumn("stratum", "Images"),
        TableColumn("condition", "Shown"),
        TableColumn("n", "Probes", "count"),
        metric_column("accuracy"),
        TableColumn(
            "delta_accuracy", "Change", "signed", interval=True, help="Accuracy minus that on the matching image."
        ),
        *map(metric_column, ("positive_accuracy", "hfpr", "yes_rate")),
        TableColumn("auroc", "AUROC", "score", interval=True),
        TableColumn(
            "margin_gap", "Margin gap", "signed", help="Mean margin of the yes probe minus that of the no probe."
        ),
        TableColumn("margin_win_rate", "Gap > 0", "percent", help="Images whose yes probe has the larger margin."),
    ]
    caption = (
        f"Questions and labels stay, the image changes; all {source.at}. What stays right without the matching image "
        "was never read off it. Wrong images show none of the words asked for; their mean is over seeds. A decoy "
        "is plausible when it is a word of some other image."
    )
    if not source.yes_or_no:
        caption = (
            "Questions stay, the image changes. What stays right without the matching image was never read off it. The "
            "mean of wrong images is over seeds."
        )
    ranges = tuple(f"{name}_{end}" for name in computed.RANGED for end in computed.ENDS)
    return Table(
        "image_dependence",
        "Image dependence",
        caption + left_out,
        fitting_columns(source, columns, frame),
        frame,
        filter=narrow,
        reading=reading,
        unprinted=ranges,
        repeated=("arm", "stratum"),
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
