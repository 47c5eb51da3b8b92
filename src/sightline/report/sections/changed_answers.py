"""What changed against Full, and whether its evidence was kept."""

from __future__ import annotations

from collections import Counter
from urllib.parse import urlencode

import pandas as pd

from sightline.core.table import Table, TableColumn
from sightline.errors import SightlineError
from sightline.report.cases import CHANGES, EVIDENCE, KEPT, LOST, NONE, OTHERWISE, UNTRACED, with_changes
from sightline.report.columns import arm_facts, build_table, in_panels, share, top
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker, answers_in_words
from sightline.rows.source import Source


@SECTIONS.register("changes")
class ChangedAnswers(SectionMaker):
    id = "changes"
    title = "What changed"
    order = 45
    lead = "Answers beside Full's on the same question, by what was left of their evidence."
    needs = (answers_in_words,)

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: changes_table(context.source))


def changes_table(source: Source) -> Table:
    """Per arm: answers unchanged, changed to wrong and to right, by evidence kept, kept in part and gone."""
    records = []
    for audited in source.in_words:
        if audited.full is None:
            continue
        rows = with_changes(audited.frame[audited.frame["arm"] != audited.full])
        for arm, own in rows.groupby("arm", sort=False):
            found = Counter(zip(own["change"], own["evidence"], strict=True))
            for change in CHANGES:
                line = {kind: found[change, kind] for kind in EVIDENCE}
                links = {f"{kind}_cases": _cases(arm, change, kind) if n else "" for kind, n in line.items()}
                every = {"all": sum(line.values()), "all_cases": _cases(arm, change, "") if any(line.values()) else ""}
                records.append({"arm": arm, "change": change, **line, **links, **every})
    if not records:
        raise SightlineError(
            "changes are counted against Full, and no run has a full arm beside another; add --arm full"
        )
    frame = in_panels(pd.DataFrame(records), arm_facts(source))
    sentence = _sentence(frame)
    frame = frame[(frame["change"] != OTHERWISE) | (frame["all"] > 0)].reset_index(drop=True)
    frame["change"] = frame["change"].map(CHANGES)
    shown = [kind for kind in EVIDENCE if kind != UNTRACED or frame[kind].any()]
    counts = [TableColumn(kind, EVIDENCE[kind].capitalize(), "count", link=f"{kind}_cases") for kind in shown]
    return build_table("changed_answers", frame, columns={"evidence": counts}, sentence=sentence)


def _cases(arm: object, change: str, evidence: str) -> str:
    """What the gallery is asked for."""
    return urlencode({key: value for key, value in (("arm", arm), ("change", change), ("evidence", evidence)) if value})


def _sentence(frame: pd.DataFrame) -> str:
    """How many of the lost answers of box-free arms had lost their evidence too."""
    free = frame[frame["regime"].isin(["box-free method", "box-free control"])]
    lost = free[free["change"] == LOST]
    if not lost["all"].sum():
        return "No box-free arm turned a right answer into a wrong one."
    line = top(lost, lost["all"])
    traced = int(line["all"] - line[UNTRACED])
    if not traced:
        return f"{line['arm']} lost most answers, {line['all']}; their questions have no region."
    none, kept = (share(line[kind] / traced) for kind in (NONE, KEPT))
    return (
        f"{line['arm']} lost most answers, {line['all']}: in {none} of them nothing of the evidence was left, in "
        f"{kept} all of its regions were at least half there."
    )
