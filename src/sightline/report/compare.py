"""Two runs over the same probes, for example two checkpoints or two library versions: what changed from A to B."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.compute as pc

from sightline.core.table import Table, format_range, format_value
from sightline.errors import SightlineError
from sightline.places.listing import Place
from sightline.report.build import CASES, Progress, pack_pictures
from sightline.report.columns import (
    arm_facts,
    build_table,
    drop_unanswered_metrics,
    listed,
    panel_of,
    share,
    typographic,
)
from sightline.report.page import Page, method_words, named_runs, run_facts, write_page
from sightline.report.sections import SECTIONS, Context, Section, make_section
from sightline.report.sections.calibration import flip_counts, flips_table_of
from sightline.report.summary import ReportSummary, Verdict, compared, main_table, summarise
from sightline.rows.reader import oracle_words, rows_at
from sightline.rows.source import MASK_COLUMNS, Source, read_source
from sightline.statistics.arm_rows import as_names, looked_up
from sightline.statistics.bootstrap import DRAWS, SEED, OneThread
from sightline.statistics.metrics import METRICS
from sightline.statistics.summaries import paired_differences
from sightline.statistics.thresholds import ThresholdLike

UNREMARKABLE = ("arms", "shards", "shard_images", "shard_probes", "created", "schema", "checksum", "probes_checksum")
"""Manifest fields that say nothing about what the two runs measured."""
SHOWN = ("frontier", "pictures", "answers", "provenance", "calibration", "cost")
"""Sections of a report that a comparison shows for both runs, those that they hold something for."""


@OneThread()
def compare_runs(
    first: Place | str,
    second: Place | str,
    out: Path | str,
    *,
    developments: Sequence[Place | str] = (),
    threshold: ThresholdLike | None = None,
    cases: int = CASES,
    draws: int = DRAWS,
    seed: int = SEED,
    progress: Progress = lambda step: None,
) -> Path:
    """Writes the comparison of run A and run B into ``out`` and returns the path of its HTML file.

    ``threshold`` is the one at which all answers are read, or the rule that names it, chosen on ``developments``.
    """
    progress("reading rows")
    source, arms = aligned(first, second, developments, threshold)
    progress("resampling images")
    differences = between_runs_table(source, arms, draws, seed)
    summary = summarise(source, draws, seed)
    paths = [audited.run.path.resolve() for audited in source.runs]
    called = [path.name for path in paths] if paths[0].name != paths[1].name else list(map(str, paths))
    progress("tables and charts")
    lead = f"The same arm on the same probes in both runs: A is {called[0]}, B is {called[1]}."
    between = Section("between", "From A to B", lead)
    between.tables.append(differences)
    between.tables.append(flips_between_runs_table(source, arms))
    sameness = bit_equality_table(source, arms)
    between.tables.append(sameness)
    contract = Section("contract", "Contract", "What is different about the two runs, and what each arm is.")
    contract.tables.append(manifest_table(source))
    context = Context(source, summary, draws, seed)
    other = "pictures" if source.all_in_words else "answers"
    makers = {name: SECTIONS.get(name)() for name in ("contract", *SHOWN) if name != other}
    made = {
        name: make_section(maker, context) or Section(maker.id, maker.title, maker.lead)
        for name, maker in makers.items()
    }
    contract.tables += made.pop("contract").tables
    parts = [between, made.pop("frontier"), contract, *made.values()]
    progress("pictures")
    gallery = next(part for part in parts if part.pictures)
    silent = summary.says_nothing and {"A", "B"}  # a picture sets both beside each other
    packed, hero = pack_pictures(source, cases, gallery, silent=silent, reference="A", between_runs=True)
    page = Page(
        title=f"Comparison of {called[0]} (A) and {called[1]} (B)",
        facts=[run_facts(audited) for audited in source.runs],
        notes=[*summary.ranked_notes(draws), *source.notes],
        verdicts=_verdicts(source, differences.frame, sameness.frame, tells=len(summary.says_nothing) < 2),
        overview=[main_table(_side_by_side(summary, source), by_run=False)],
        sections=parts,
        packed=packed,
        hero=hero,
        method=method_words(draws, seed),
        headline=_headline(differences.frame, called, _measure(source), len(summary.says_nothing)),
        banner=list(summary.says_nothing.values()),
        runs=named_runs(source),
    )
    progress("writing")
    return write_page(page, Path(out))


def _measure(source: Source) -> str:
    """The metric that tells how good answers are."""
    return "score" if source.all_in_words else "accuracy"


def _headline(differences: pd.DataFrame, called: list[str], measure: str, silent: int) -> list[str]:
    """Which arms' accuracy, or score, differs between the runs beyond its interval; if none, what the images allow.

    ``silent`` of the runs have answers that say nothing. That guesses did not change is no news, and between two such
    runs neither is a change.
    """
    lines = differences[differences["metric"] == measure]
    said = []
    for word in ("lower", "higher"):
        arms = [str(arm) for arm in lines.loc[lines["words"].str.startswith(word), "arm"]]
        said += [f"{measure} of {listed(arms, 4)} is {word}"] if arms else []
    if silent > 1 or (silent and not said):
        return []
    if not said:
        said_none = f"From {called[0]} to {called[1]} no arm's {measure} is shown to change"
        reach = format_range(lines["diff_low"].min(), lines["diff_high"].max(), "signed")
        return [
            f"{said_none}; {reach} is what these images leave open." if reach else f"{said_none}: there is no interval."
        ]
    arms_in_all = f"{len(lines)} arm{'s' if len(lines) > 1 else ''}"
    return [f"From {called[0]} to {called[1]} {' and '.join(said)}, of {arms_in_all}."]


def aligned(
    first: Place | str,
    second: Place | str,
    developments: Sequence[Place | str] = (),
    threshold: ThresholdLike | None = None,
) -> tuple[Source, list[str]]:
    """Both runs on their common arms and probes, after checking that they audited the same probe set."""
    source = read_source([first, second], names=["A", "B"], pairs=True, developments=developments, threshold=threshold)
    a, b = source.runs
    if not source.same_probes:
        ours, theirs = ({str(probe["id"]) for probe in one.run.each_probe()} for one in (a, b))
        common = len(ours & theirs)
        what = f"{len(ours) - common} probes only in A, {len(theirs) - common} only in B, {common} ids in common"
        if ours == theirs:
            what = "the same probe ids, but their content differs"
        raise SightlineError(f"{first} and {second} did not audit the same probes ({what}); run both on one probe set")
    names = [set(audited.frame["arm_name"].unique()) for audited in source.runs]
    arms = [str(arm) for arm in a.frame["arm_name"].unique() if arm in names[1]]
    if not arms:
        raise SightlineError(
            f"the runs have no arm in common: A has {', '.join(sorted(names[0]))}; B has {', '.join(sorted(names[1]))}"
        )
    notes = list(source.notes)
    for letter, only in (("A", names[0] - names[1]), ("B", names[1] - names[0])):
        if only:
            notes.append(f"only in {letter}, and not compared: {', '.join(sorted(only))}")
    answered = [set(audited.frame["probe_id"].unique()) for audited in source.runs]
    probes = answered[0] & answered[1]
    left_out = len(answered[0] | answered[1]) - len(probes)
    if not probes:
        raise SightlineError("the runs have no answered probe in common yet; let both finish")
    if left_out:
        notes.append(f"{left_out} probes are usable in one of the runs alone and are left out")
    kept = []
    for audited in source.runs:
        wanted = audited.frame["arm_name"].isin(arms) & audited.frame["probe_id"].isin(probes)
        kept.append(replace(audited, frame=audited.frame[wanted].reset_index(drop=True)))
    before, after = kept[0].frame, kept[1].frame
    for name in ("margin", "predicted", "correct", "score"):
        if name in before:
            after[f"reference_{name}"] = _of_other_run(before, after, arms, name)
        before[f"reference_{name}"] = None if name in ("predicted", "correct") else np.nan
    return replace(source, runs=kept, notes=notes), arms


def _of_other_run(before: pd.DataFrame, after: pd.DataFrame, arms: list[str], name: str) -> pd.Series[Any]:
    """What the same arm says in the other run about the probe of each row."""
    parts = []
    for arm in arms:
        own, others = (frame[frame["arm_name"] == arm] for frame in (after, before))
        table = as_names(others[name]).set_axis(pd.Index(as_names(others["probe_id"])))
        parts.append(looked_up(own["probe_id"], table))
    found: pd.Series[Any] = pd.concat(parts).reindex(after.index)
    return found


def _pair(source: Source, arm: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of one arm in A and in B, probes in the same order."""
    a, b = (run.frame[run.frame["arm_name"] == arm] for run in source.runs)
    places = pd.Index(as_names(b["probe_id"])).get_indexer(pd.Index(as_names(a["probe_id"])))
    return a, b.iloc[places]


def between_runs_table(source: Source, arms: list[str], draws: int, seed: int) -> Table:
    """B - A of every compared metric of every common arm, paired by probe, resampled by image."""
    parts = []
    for arm in arms:
        a, b = _pair(source, arm)
        both = pd.concat([a.assign(arm="A"), b.assign(arm="B")], ignore_index=True)
        parts.append(paired_differences(both, "A", metrics=compared(), draws=draws, seed=seed).assign(arm=arm))
    frame = drop_unanswered_metrics(pd.concat(parts, ignore_index=True))
    frame = frame.rename(columns={"low": "diff_low", "high": "diff_high"})
    words = not source.yes_or_no
    frame["label"] = frame["metric"].map(lambda name: (words and METRICS[name].label_of_words) or METRICS[name].label)
    frame["words"] = typographic(frame["words"])
    facts = arm_facts(source)
    regimes = facts[facts["run"] == "A"].set_index("arm_name")["regime"]
    frame["panel"] = frame["arm"].map(regimes).map(panel_of)
    frame = frame.sort_values("panel", kind="stable", ignore_index=True)
    return build_table("between_runs", frame, source)


def flips_between_runs_table(source: Source, arms: list[str]) -> Table:
    records = []
    for arm in arms:
        a, b = _pair(source, arm)
        records.append({"arm": arm, "probes": len(a), **flip_counts(a, b)})
    return flips_table_of("flips_between_runs", records, source)


def bit_equality_table(source: Source, arms: list[str]) -> Table:
    """How far the runs are the same bit for bit: margins, kept cells, answers."""
    records = []
    for arm in arms:
        a, b = _pair(source, arm)
        ours, theirs = (
            rows_at(audited.run, frame["row"].tolist(), MASK_COLUMNS[:1]).column(0).combine_chunks()
            for audited, frame in zip(source.runs, (a, b), strict=True)
        )
        same_size = a["n_tokens"].to_numpy() == b["n_tokens"].to_numpy()
        identical = same_size & np.asarray(pc.fill_null(pc.equal(ours, theirs), False))
        overlaps = [
            _overlap(x, y) for x, y, ok in zip(ours.to_pylist(), theirs.to_pylist(), same_size, strict=True) if ok
        ]
        change = np.abs(_margins(b) - _margins(a))
        records.append(
            {
                "arm": arm,
                "probes": len(a),
                "same_cells": float(identical.mean()),
                "jaccard": float(np.mean(overlaps)) if overlaps else np.nan,
                "same_margin": float((change == 0).mean()) if np.isfinite(change).any() else np.nan,
                "mean_change": float(change.mean()),
                "max_change": float(change.max()),
                "same_answer": float((a["predicted"].to_numpy() == b["predicted"].to_numpy()).mean()),
            }
        )
    return build_table("sameness", pd.DataFrame(records), source)


def _margins(rows: pd.DataFrame) -> np.ndarray:
    """(n,) margins; NaN where the scorer gives none."""
    return rows["margin"].to_numpy(dtype=float) if "margin" in rows else np.full(len(rows), np.nan)


def _overlap(first: bytes, second: bytes) -> float:
    a, b = np.frombuffer(first, np.uint8), np.frombuffer(second, np.uint8)
    either = int(np.unpackbits(a | b).sum())
    return int(np.unpackbits(a & b).sum()) / either if either else 1.0


def manifest_table(source: Source) -> Table:
    """Every recorded field in which the runs differ."""
    a, b = (_flat(audited.run.manifest) for audited in source.runs)
    fields = [key for key in sorted({*a, *b}) if a.get(key) != b.get(key)]
    records = [{"field": key, "a": a.get(key, "–"), "b": b.get(key, "–")} for key in fields]
    records = records or [{"field": "none", "a": "", "b": ""}]
    return build_table("run_differences", pd.DataFrame(records))


def _flat(manifest: dict[str, Any], prefix: str = "") -> dict[str, str]:
    flat: dict[str, str] = {}
    for key, value in manifest.items():
        if prefix == "" and key in UNREMARKABLE:
            continue
        if isinstance(value, dict):
            flat |= _flat(value, f"{prefix}{key}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            flat[prefix + key] = text if len(text) <= 80 else text[:16] + "…"
    return flat


def _side_by_side(summary: ReportSummary, source: Source) -> ReportSummary:
    """The summary with the two rows of an arm next to each other."""
    names = arm_facts(source)["arm_name"]
    seen = list(names.unique())
    order = summary.arms["arm"].map(names).map(seen.index)
    return replace(summary, arms=summary.arms.iloc[order.argsort(kind="stable")].reset_index(drop=True))


def _verdicts(source: Source, differences: pd.DataFrame, sameness: pd.DataFrame, *, tells: bool) -> list[Verdict]:
    """One statement per arm, by panels; what changed is put into words where answers tell something in either run."""
    same = sameness.set_index("arm")
    facts = arm_facts(source)
    facts = facts[facts["run"] == "A"].set_index("arm_name")
    measure = _measure(source)
    found = []
    for arm in (str(name) for name in differences["arm"].unique()):
        line = differences[(differences["arm"] == arm) & (differences["metric"] == measure)].iloc[0]
        values = f"{format_value(line['reference_value'], 'score')} in A, {format_value(line['value'], 'score')} in B"
        words = f"{measure} {values}" + (f", {line['words']}" if tells else "")
        if same.loc[arm, "same_answer"] == 1 and same.loc[arm, "same_margin"] == 1:
            words = f"every margin is the same in A and B; accuracy {format_value(line['value'], 'score')}"
        cells = share(same["same_cells"].astype(float)[arm])
        answers = share(1 - same["same_answer"].astype(float)[arm])
        words += f"; {answers} of answers flip, kept cells are identical in {cells} of probes."
        if facts.loc[arm, "regime"] == "oracle":
            words = f"{oracle_words(facts.loc[arm, 'box_source'])} {words}"
        found.append(Verdict(arm, words, panel_of(facts.loc[arm, "regime"])))
    return found
