"""The numbers behind the tables: every metric of every arm, and every arm against Full, from paired draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from sightline.core.table import Table, format_range, format_value
from sightline.errors import refuse_unknown
from sightline.report.columns import (
    answers_given,
    arm_facts,
    build_table,
    drop_unanswered_metrics,
    family,
    heading,
    headings,
    in_panels,
    listed,
    metric_columns,
    share,
    shown_metrics,
    top,
)
from sightline.rows.reader import oracle_words, sentence
from sightline.rows.source import Audited, Source
from sightline.statistics.bootstrap import DRAWS, SEED, ranked_words
from sightline.statistics.intervals import FEW_DIFFER
from sightline.statistics.metrics import METRICS, metrics_shown_in
from sightline.statistics.summaries import ArmAnalysis, difference_table, every_metric, nothing_in, summary_table


@dataclass(frozen=True)
class ReportSummary:
    """``arms``: one line per arm (``metric``, ``metric_low``, ``metric_high``); ``differences``: per arm and metric."""

    arms: pd.DataFrame
    """With the columns of ``arm_facts``: ``arm_name``, ``run``, ``regime``, ``box_source``."""
    differences: pd.DataFrame
    """arm - reference of the same run, ``against`` Full or another named arm; empty when there is none."""
    notes: list[str]
    says_nothing: dict[str, str] = field(default_factory=dict)
    """Name of a run from whose answers nothing can be read -> a sentence that says why, with the numbers."""
    answers_at: str = ""
    """The threshold of the answers as a sentence behind a caption; "" where they are as recorded."""

    def ranked_notes(self, draws: int) -> list[str]:
        """A line where an arm is too large for AUROC to be ranked in every draw."""
        words = ranked_words(int(self.arms["n_probes"].max()), draws) if self.arms["auroc"].notna().any() else ""
        return [words] if words else []

    @property
    def facts(self) -> pd.DataFrame:
        """``arm_facts`` of the report's arms."""
        return self.arms.set_index("arm")[["arm_name", "run", "regime", "box_source"]]

    def difference(self, arm: str, metric: str) -> pd.Series[Any] | None:
        if self.differences.empty:
            return None
        table = self.differences
        found = table[(table["arm"] == arm) & (table["metric"] == metric) & (table["against"] == "Full")]
        return None if found.empty else found.iloc[0]


def summarise(source: Source, draws: int = DRAWS, seed: int = SEED, references: Sequence[str] = ()) -> ReportSummary:
    """Every run on its own: arms are compared with the Full arm of their run, never across probe sets.

    ``references`` are further arms to compare all others with, such as a random control at the same budget.
    """
    known = [str(arm) for arm in source.frame["arm_name"].unique()]
    for reference in references:
        refuse_unknown(reference, known, f"no run has an arm '{reference}' to compare with", "arms:")
    facts = arm_facts(source)
    arms, differences, notes, says_nothing = [], [], [], {}
    for audited in source.runs:
        # Statistics see the run's own arm names ("full" reads as Full in words); the report's names come back after.
        names = audited.shown_arms
        frame = audited.frame.assign(arm=audited.frame["arm_name"])
        told = [metric.name for metric in every_metric(frame)]
        asked = dict.fromkeys([*told, *compared()])
        analysis = ArmAnalysis.of(frame, list(asked), None, draws, seed)
        table = summary_table(analysis, metrics=told)
        selectors = audited.frame[["arm_name", "selector"]].drop_duplicates("arm_name").astype(str)
        table["selector"] = table["arm"].map(selectors.set_index("arm_name")["selector"])
        sums = [analysis.arms[arm].sums for arm in table["arm"]]
        table["n_unsupported"] = [
            0 if each is None or math.isnan(value) else each.probes(METRICS["unsupported"])
            for each, value in zip(sums, table["unsupported"], strict=True)
        ]
        table["arm"] = table["arm"].map(names)
        arms.append(table.join(facts, on="arm"))
        if audited.full is not None and len(audited.arms) > 1:
            wanted = [next(plain for plain, shown in names.items() if shown == audited.full)]
        else:
            wanted = []
            lacking = "no full arm, so nothing can be compared with it; amend the run with --arm full"
            alone = "Full is the only arm; amend the run with the arms to compare, for example --arm target:0.3"
            notes.append(audited.said(lacking if audited.full is None else alone))
        nothing = nothing_in(table)
        if nothing:
            says_nothing[audited.name] = sentence(nothing, audited.name)
        for reference in dict.fromkeys([*wanted, *references]):
            if reference in names and len(names) > 1:
                found = difference_table(analysis, reference, metrics=compared())
                found = drop_unanswered_metrics(found)
                against = "Full" if reference in wanted else reference
                differences.append(found.assign(arm=found["arm"].map(names), against=against))
    return ReportSummary(
        pd.concat(arms, ignore_index=True).copy(),  # in one block: tables add columns to it
        pd.concat(differences, ignore_index=True) if differences else pd.DataFrame(),
        notes,
        says_nothing,
        source.answers_at,
    )


def compared() -> list[str]:
    """Metrics whose difference from a reference is reported."""
    return [metric.name for metric in metrics_shown_in("differences")]


# What a reader should take away first: one or two sentences per run, made from the numbers alone.

MOST_NAMED = 4
"""Arms that a sentence names; of more it says how many."""


def headlines(source: Source, summary: ReportSummary) -> list[str]:
    """For each run what pruning does to right answers and their evidence, under box-free arms alone.

    Where nothing can be read from a run's answers, that is all that is said of it. Where the numbers show nothing, the
    sentence says so.
    """
    found = []
    for audited in source.runs:
        nothing = summary.says_nothing.get(audited.name)
        found.append(nothing or audited.said(" ".join(_sentences(audited, summary))))
    return found


def _sentences(audited: Audited, summary: ReportSummary) -> list[str]:
    lines = summary.arms[summary.arms["run"] == audited.name]
    free = lines[lines["regime"].isin(["box-free method", "box-free control"])]
    pruned = free[free["keep"] < 1.0]
    if pruned.empty:
        return ["No box-free arm prunes anything here: there is nothing to say about what pruning costs."]
    return [*_scores(audited, lines, pruned), *_evidence(audited, summary, lines, pruned)]


def _scores(audited: Audited, lines: pd.DataFrame, pruned: pd.DataFrame) -> list[str]:
    """Of answers in words what the budget with most arms leaves of the score, from the best arm to the worst."""
    if not audited.in_words or audited.full is None:
        return []
    budgets = _budgets(pruned)
    budget = budgets.value_counts().index[0]
    there = pruned[budgets == budget].sort_values("score", ascending=False, kind="stable")
    ends = [there.iloc[0]] if len(there) == 1 else [there.iloc[0], there.iloc[-1]]
    named = [f"{format_value(line['score'], 'score')} ({_pretty(str(line['arm_name']))})" for line in ends]
    full = lines.loc[lines["arm"] == audited.full, "score"].iloc[0]
    reached = " to ".join(named)
    return [f"Of Full's score of {format_value(full, 'score')}, box-free arms that keep {budget} reach {reached}."]


def _evidence(audited: Audited, summary: ReportSummary, lines: pd.DataFrame, pruned: pd.DataFrame) -> list[str]:
    """Which arms are right without the evidence, and whether accuracy or score shows it."""
    known = pruned[pruned["unsupported"].map(math.isfinite)]
    right = "correct yes answer" if audited.yes_or_no else "correct answer"
    if not (pruned["accuracy"] > 0).any():
        return [f"No box-free arm gives any {right}."]
    if known.empty:
        return [f"No {right} has an annotated region: what it rests on cannot be told."]
    lost = known[known["unsupported_low"] > 0]
    if lost.empty:
        worst = top(known, known["unsupported_high"])
        bound = f"of the {right}s of {worst['arm_name']}, the least certain, at most "
        bound += f"{share(worst['unsupported_high'])} have none left."
        if worst["unsupported_high"] > 0.5:  # a bound that says nothing is not said
            few = known.loc[known["unsupported_high"] > 0.5, "arm_name"].astype(str).tolist()
            bound = f"the {right}s of {listed(few, MOST_NAMED)} are too few to bound that."
        return [f"No box-free arm is shown to answer right without the evidence: {bound}"]
    # The budget at which most is lost, and there everybody who is known to lose something.
    budget = share(top(lost, lost["unsupported"])["keep"])
    there = known[_budgets(known) == budget]
    losing = there[there["unsupported_low"] > 0]
    verb = "keeps" if len(losing) == 1 else "keep"
    said = [f"{_named(losing)} {verb} {budget}: {_shares(losing)} of {right}s are unsupported, with no evidence left."]
    measure = "score" if audited.in_words else "accuracy"
    blind = [line for _, line in losing.iterrows() if _hidden(line, summary, measure)]
    if blind:
        names = listed([_pretty(str(line["arm_name"])) for line in blind], MOST_NAMED)
        said.append(f"{measure.capitalize()} does not tell: that of {names} cannot be told from Full's.")
    elif audited.full is not None:
        full = lines.loc[lines["arm"] == audited.full, measure].iloc[0]
        scores = [format_value(value, "score") for value in (losing[measure].min(), losing[measure].max())]
        span = scores[0] if scores[0] == scores[1] else "–".join(scores)
        said.append(f"Their {measure} is {span}, Full's {format_value(full, 'score')}.")
    safe = there[(there["unsupported_low"] <= 0) & (there["unsupported_high"] < losing["unsupported"].min())]
    if not safe.empty:
        said.append(f"{_named(safe)} at the same budget: {_shares(safe)} unsupported.")
    return said


def _budgets(lines: pd.DataFrame) -> pd.Series[str]:
    """The kept share of each arm in whole per cent: arms of one budget are compared with one another."""
    return lines["keep"].map(share)


def _hidden(line: pd.Series[Any], summary: ReportSummary, measure: str) -> bool:
    """Whether the arm's interval of accuracy or score allows no loss against Full."""
    change = summary.difference(str(line["arm"]), measure)
    return change is not None and bool(change["low"] <= 0 <= change["high"])


def _named(lines: pd.DataFrame) -> str:
    return listed([_pretty(str(name)) for name in lines["arm_name"]], MOST_NAMED)


def _pretty(arm_name: str) -> str:
    """``target_grid:0.3`` as a name in a sentence; what has arguments keeps them."""
    name = family(arm_name)
    return name if ":" in name else name.replace("_", " ").capitalize()


def _shares(lines: pd.DataFrame) -> str:
    low, high = share(lines["unsupported"].min()), share(lines["unsupported"].max())
    return low if low == high else f"{low.removesuffix('%')}–{high}"


# The top of the page: one sentence per arm, and the main table.


@dataclass(frozen=True)
class Verdict:
    """One arm in one sentence or two."""

    arm: str
    words: str
    panel: str = ""
    """The heading under which it stands."""


def main_table(summary: ReportSummary, *, by_run: bool = True) -> Table:
    """Answer behaviour and provenance of every arm, with 95% image-cluster intervals.

    ``by_run`` gives the runs of a report panels of their own.
    """
    said = "yes or no" in answers_given(summary.arms)
    negatives = "; NegSRC is coverage of the confusable word on negatives, no evidence of absence" if said else ""
    return build_table(
        "main",
        in_panels(summary.arms, summary.facts, by_run=by_run),
        columns={"metrics": metric_columns("main", summary.arms)},
        coverage=heading(METRICS["pos_ecr"], summary.arms),
        negatives=negatives,
        answers_at=summary.answers_at,
        few=unseen_image_note(summary.arms),
    )


def unseen_image_note(arms: pd.DataFrame) -> str:
    """A sentence for a caption: which of the printed intervals allow for an unseen image; "" where none does."""
    marked: dict[str, list[str]] = {}
    titles = headings(shown_metrics("main", arms), arms)
    for arm, names in zip(arms["arm"], arms["few_differ"].str.split(", "), strict=True):
        for name, title in titles.items():
            if name in names:
                marked.setdefault(title, []).append(str(arm))
    found = "; ".join(
        label if len(own) == len(arms) > 1 else f"{label} of {', '.join(own)}" for label, own in marked.items()
    )
    if not found:
        return ""
    return (
        f" Where fewer than {FEW_DIFFER} images differ, resampling cannot bound what others would do, and the interval "
        f"allows for an image that was not seen: {found}."
    )


def verdicts(source: Source, summary: ReportSummary) -> list[Verdict]:
    """One statement per arm, by panels, otherwise in the order of the run."""
    full = {audited.full for audited in source.runs}
    found = []
    for _, line in in_panels(summary.arms, summary.facts).iterrows():
        words = _words(line, summary, line["arm"] in full)
        if line["regime"] == "oracle":
            words = f"{oracle_words(line['box_source'])} {words}"
        found.append(Verdict(str(line["arm_name"]), words, str(line["panel"])))
    return found


def _words(line: pd.Series[Any], summary: ReportSummary, is_full: bool) -> str:
    arm = str(line["arm"])
    in_words = math.isfinite(line.get("score", math.nan))
    measure = "score" if in_words else "accuracy"
    result = f"{measure} {format_value(line[measure], 'score')}"
    if is_full:
        interval = format_range(line[f"{measure}_low"], line[f"{measure}_high"], "score")
        risk = "" if math.isnan(line["hfpr"]) else f", hFPR {format_value(line['hfpr'], 'score')}"
        return (
            f"is the reference: {result}{f' ({interval})' if interval else ''}{risk} on {line['n_probes']} probes "
            f"of {line['n_images']} image{'s' if line['n_images'] != 1 else ''}."
        )
    words = f"keeps {share(line['keep'])}; {result}"
    reads = line["run"] not in summary.says_nothing  # else "identical to Full" would only mean that both guess
    change = summary.difference(arm, measure) if reads else None
    if change is not None and change["words"] != "not computed":
        words += f", {change['words'].replace(' -', ' −').replace('(-', '(−')}"
    alarms = summary.difference(arm, "hfpr") if reads else None
    if alarms is not None and str(alarms["words"]).startswith(("lower", "higher")):
        words += f"; hFPR {format_value(line['hfpr'], 'score')}, {alarms['words']}"
    if math.isfinite(line["pos_ecr"]):
        words += f"; {share(line['pos_ecr'])} of the evidence survives"
        if math.isfinite(line["anchor_ecr"]) and abs(line["anchor_ecr"] - line["pos_ecr"]) > 5e-4:
            words += f" in merges, {share(line['anchor_ecr'])} in place"
        if math.isfinite(line["unsupported"]) and reads:
            n = int(line["n_unsupported"])
            answers = f"{'' if in_words else 'yes '}answer{'s' if n != 1 else ''}"
            words += f", {share(line['unsupported'])} of {n} correct {answers} {'are' if n != 1 else 'is'} unsupported"
    return words + "."
