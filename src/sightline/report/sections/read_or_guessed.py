"""What was read and what was guessed: answers that hold on a page and fall on its twin, where nothing is likely."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd

from sightline.core.table import Table
from sightline.report.columns import build_table, excludes_zero, in_report, lines_by_arm, share, signed, top
from sightline.report.sections.base import SECTIONS, Context, Section, SectionMaker
from sightline.rows.source import Audited, Source
from sightline.statistics.summaries import ArmAnalysis, difference_table, summary_table

BINS = ((0.0, 8.0), (8.0, 12.0), (12.0, 20.0), (20.0, math.inf))
"""Pixels of character height that reach the model on the page."""
EVERY = "all"


def has_twins(source: Source) -> bool:
    return any("twin_right" in audited.frame for audited in source.runs)


@SECTIONS.register("read-or-guessed")
class ReadOrGuessed(SectionMaker):
    id = "read-or-guessed"
    title = "Read or guessed"
    order = 16
    lead = "The same questions about pages and about their twins: the same layout, with words that nobody can guess."
    needs = (has_twins,)

    def fill(self, section: Section, context: Context) -> None:
        section.add(lambda: guessed_table(context))


def guessed_table(context: Context) -> Table | None:
    """Per arm, over all questions and by legibility: right on the page, right on the twin, and what was guessed."""
    source = context.source
    lines = []
    for audited in source.runs:
        if "twin_right" not in audited.frame:
            continue
        frame = audited.frame.assign(arm=audited.frame["arm_name"])
        frame = frame[frame["twin_right"].notna()]
        for pixels, own in _by_pixels(frame):
            found = _guessed(own, audited, context)
            lines.append(found.assign(pixels=pixels, arm=in_report(audited, found["arm"])))
    if not lines:
        return None
    table = lines_by_arm(lines, source)
    return build_table("read_or_guessed", table, sentence=guessed_words(table))


def _by_pixels(frame: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """All rows, then those of each bin of legibility that has any; one bin alone would say the same again."""
    yield EVERY, frame
    if "legibility" not in frame or frame["legibility"].isna().all():
        return
    pixels = frame["legibility"].to_numpy(dtype=float, na_value=np.nan)
    found = [(low, high, (pixels >= low) & (pixels < high)) for low, high in BINS]
    if sum(bool(there.any()) for *_, there in found) < 2:
        return
    for low, high, there in found:
        if there.any():
            words = f"below {high:.0f} px" if not low else f"{low:.0f}–{high:.0f} px"
            yield f"from {low:.0f} px" if math.isinf(high) else words, frame[there]


def _guessed(frame: pd.DataFrame, audited: Audited, context: Context) -> pd.DataFrame:
    """One line per arm; ``beyond`` is the difference to Full, where both are about the same questions."""
    analysis = ArmAnalysis.of(frame, ["accuracy", "guessed"], None, context.draws, context.seed)
    lines = summary_table(analysis).rename(columns={"accuracy": "page_right"})
    on_twin = frame.groupby("arm", observed=True)["twin_right"].mean()
    lines["twin_right"] = on_twin.reindex(lines["arm"]).to_numpy()
    for key in ("beyond", "beyond_low", "beyond_high"):
        lines[key] = math.nan
    full = next((own for own, shown in audited.shown_arms.items() if shown == audited.full), None)
    probes = {str(arm): set(own["probe_id"]) for arm, own in frame.groupby("arm", observed=True)}
    if full in probes and all(own == probes[full] for own in probes.values()):
        apart = difference_table(analysis, full, metrics=["guessed"]).set_index("arm")
        for key, there in (("beyond", "diff"), ("beyond_low", "low"), ("beyond_high", "high")):
            lines[key] = lines["arm"].map(apart[there].astype(float))
    return lines


def guessed_words(table: pd.DataFrame) -> str:
    """Full's own fall, and the box-free method that guesses most beyond it."""
    every = table[table["pixels"] == EVERY]
    every = every[every["guessed"].map(math.isfinite)]  # where nothing is right on the page, nothing was guessed
    full = every[every["regime"] == "full"]
    said = []
    for _, line in full.iterrows():
        said.append(
            f"Of the answers that Full gives right on the page, {share(line['guessed'])} are wrong on the twin: "
            "guessed, or harder to read there."
        )
    pruned = every[every["regime"].isin(["box-free method", "detector-assisted"])]
    if len(pruned):
        line = top(pruned, pruned["guessed"])
        words = f"Of methods, {line['arm_name']} falls most, {share(line['guessed'])}"
        if math.isfinite(line["beyond"]):
            known = excludes_zero(float(line["beyond_low"]), float(line["beyond_high"]))
            words += f": {signed(line, 'beyond')} beyond Full" + ("" if known else ", which these pages leave open")
        said.append(f"{words}.")
    return " ".join(said)
