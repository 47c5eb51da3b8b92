"""What becomes of a field by its kind: right, swapped for another text of the page, a digit off, invented, silent."""

from __future__ import annotations

import math
from urllib.parse import urlencode

import pandas as pd

from sightline.core.table import Table
from sightline.report.columns import build_table, column_of, in_panels, in_report, lines_by_arm, share, top
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker, any_run_has
from sightline.report.verdict import KINDS, LEAST_OF_KIND, kind_words
from sightline.rows.source import Audited, Source
from sightline.statistics.metrics import METRICS
from sightline.statistics.summaries import arm_summary

RISKS = ("accuracy", "swapped", "digit_error", "invented", "silent", "confidently_wrong", "character_errors")
DIGITS = ("digits_changed", "digits_lost", "digits_added")
TRANSCRIBED = ("character_errors", "word_errors", "words_found", "tokens_per_text_token")
EVERY = "every kind"
READ_OUT = {"swapped": "are swapped", "digit_error": "have wrong digits", "confidently_wrong": "are confidently wrong"}
"""Risks of which the sentence names the worst -> its verb."""


def has_fields(rows: pd.DataFrame) -> bool:
    """Whether answers were judged as fields of a page whose texts are known."""
    return "swapped" in rows and bool(rows["swapped"].notna().any())


def has_transcripts(rows: pd.DataFrame) -> bool:
    return "words_found" in rows and bool(rows["words_found"].notna().any())


@SECTIONS.register("field-risk")
class FieldRisk(SectionMaker):
    id = "field-risk"
    title = "Field risk"
    order = 14
    lead = "What is read off a page instead of what stands there: by kind of field, and of whole pages written down."
    needs = (any_run_has(has_fields), any_run_has(has_transcripts))

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: field_risk_table(context))
        section.add(lambda: transcription_table(context))


def field_risk_table(context: Context) -> Table | None:
    """Per arm and kind of field the share of every outcome, with intervals over images."""
    source = context.source
    lines = []
    for audited in source.runs:
        if has_fields(audited.frame):
            kinds = sorted(str(kind) for kind in audited.frame["kind"].dropna().unique() if str(kind))
            # All together first, then one by one where there are several.
            every = [EVERY, *kinds] if len(kinds) > 1 else kinds or [EVERY]
            lines += [_risks(audited, kind, context) for kind in every]
    if not lines:
        return None
    frame = lines_by_arm(lines, source)
    return build_table("field_risk", frame, sentence=risk_words(frame, source))


def _risks(audited: Audited, kind: str, context: Context) -> pd.DataFrame:
    frame = audited.frame.assign(arm=audited.frame["arm_name"])
    frame = frame if kind == EVERY else frame[frame["kind"] == kind]
    found = arm_summary(frame, metrics=RISKS, draws=context.draws, seed=context.seed)
    sums = frame.groupby("arm", observed=True)[list(DIGITS)].sum()
    found[list(DIGITS)] = sums.reindex(found["arm"]).to_numpy()
    # Resampled means may reach below nothing; a distance does not.
    found["character_errors_low"] = found["character_errors_low"].clip(lower=0.0)
    found["arm"] = in_report(audited, found["arm"])
    shown = urlencode({"filter": "swapped"})
    found["swapped_cases"] = [
        f"{urlencode({'arm': arm})}&{shown}" if value > 0 else ""
        for arm, value in zip(found["arm"], found["swapped"], strict=True)
    ]
    return found.assign(kind=kind)


def risk_words(frame: pd.DataFrame, source: Source) -> str:
    """Of each risk the kind and box-free method that has most of it, with the bound that a rule would be held to.

    One date of one is all dates: kinds of few questions are in the table alone.
    """
    pruned = frame[frame["regime"].isin(["box-free method", "detector-assisted"])]
    several = (pruned["kind"] != EVERY) & (pruned["n_probes"] >= LEAST_OF_KIND)
    together = pruned[pruned["kind"] == EVERY]
    of_kinds = pruned[several] if several.any() else pruned if together.empty else together
    said = []
    for risk, verb in READ_OUT.items():
        known = of_kinds[of_kinds[risk].map(math.isfinite) & (of_kinds["n_probes"] > 0)]
        if known.empty:
            continue
        line = top(known, known[risk])
        asked = kind_words("" if line["kind"] == EVERY else str(line["kind"]))
        asked = asked if str(line["kind"]) in KINDS else f"answers to {asked}"
        if not line[risk] > 0:
            worst = top(known, known[f"{risk}_high"])
            said.append(f"no answer is seen that would count as {METRICS[risk].label.lower()} (upper bound "
                        f"{share(worst[f'{risk}_high'])})")  # fmt: skip
            continue
        bound = f"upper bound {share(line[f'{risk}_high'])}" if math.isfinite(line[f"{risk}_high"]) else "no bound"
        said.append(f"{asked} {verb} in {share(line[risk])} ({bound}) under {line['arm_name']}")
    words = "; ".join(said)
    return f"{words[0].upper()}{words[1:]}." if words else ""


def transcription_table(context: Context) -> Table | None:
    """Per arm how much of its pages was written down."""
    runs = [audited.name for audited in context.source.runs if has_transcripts(audited.frame)]
    lines = context.summary.arms[context.summary.arms["run"].isin(runs)]
    if lines.empty:
        return None
    lines = in_panels(lines, context.summary.facts)
    columns = [column_of(METRICS[name]) for name in ("keep", *TRANSCRIBED)]
    return build_table("transcription", lines, columns={"metrics": columns})
