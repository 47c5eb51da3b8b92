"""A gate for continuous integration: rules decided on the bound of an interval, never on the point.

    accuracy(target:0.3) >= 0.7                      a metric of an arm
    accuracy(target:0.3) - accuracy(full) >= -0.02   a paired difference between two arms

``>=`` holds when the lower bound does, ``<=`` when the upper bound does. What the interval cannot decide is not passed,
and neither is what rests on too few probes, on an unfinished run or on answers that say nothing (a model at chance):
such a rule is refused.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import pandas as pd

from sightline.analysis.threshold_rules import ThresholdLike, check_models, rule_of
from sightline.analysis.threshold_rules import read_rules as read_thresholds
from sightline.errors import SightlineError
from sightline.places import Place
from sightline.report.gate_rules import EXAMPLE, Rule, parse_rule, renamings
from sightline.report.panels import oracle_notes
from sightline.report.source import read_source
from sightline.report.table import format_value
from sightline.statistics.bootstrap import DRAWS, SEED, ranked_words
from sightline.statistics.metrics import METRICS, POPULATIONS, Metric
from sightline.statistics.power import image_differences, image_shares, images_for_wilson, images_needed
from sightline.statistics.readable_answers import LEAST_IMAGES, LEAST_N, nothing_to_read
from sightline.statistics.summaries import arm_rows, arm_summary, paired_differences
from sightline.store.load import Run, load_run
from sightline.store.run_parts import RunPlace

MOST_IMAGES = 1_000_000
"""A number of images that nobody will collect says nothing more."""
Decision = Literal["passed", "failed", "undecided", "refused"]


@dataclass(frozen=True)
class Outcome:
    """What a rule came to on one run.

    ``undecided``: the interval holds the bound, or there is no interval. ``refused``: whatever the interval says, too
    few probes are behind it, answers from which nothing can be read, or a run that is not finished.
    """

    rule: Rule
    verdict: Decision
    value: float
    low: float
    high: float
    n: int
    """Probes that the metric concerns; of a difference, in the arm that has fewer of them."""
    words: str

    @property
    def passed(self) -> bool:
        return self.verdict == "passed"


@dataclass(frozen=True)
class GatedRun:
    """All rules on one run, and the lines that say at which threshold it was read and what is wrong with it."""

    name: str
    outcomes: Sequence[Outcome]
    notes: Sequence[str] = ()

    @property
    def passed(self) -> bool:
        return all(outcome.passed for outcome in self.outcomes)


def gate_runs(
    runs: Sequence[RunPlace],
    rules: Iterable[str],
    *,
    developments: Sequence[Place | str] = (),
    threshold: ThresholdLike | None = None,
    least_n: int = LEAST_N,
    allow_partial: bool = False,
    draws: int = DRAWS,
    seed: int = SEED,
) -> list[GatedRun]:
    """Decides every rule on each run. Runs are called by their folders, or by their paths where folders are alike.

    ``threshold`` is the one at which all answers are read, or the rule that names it, chosen on those of the
    ``developments`` that have a run's weights.
    """
    rules = list(rules)
    opened = [load_run(run) for run in runs]
    names = [run.path.resolve().name for run in opened]
    if len(set(names)) < len(names):
        names = [str(run.path) for run in opened]
    chosen_by = {} if threshold is None else read_thresholds(threshold)
    check_models(chosen_by, [str(run.manifest.get("model")) for run in opened])
    fitting = _by_weights(developments, opened)
    decide = partial(run_gate, rules=rules, least_n=least_n, allow_partial=allow_partial, draws=draws, seed=seed)
    gated = []
    for name, place, run in zip(names, runs, opened, strict=True):
        own = fitting.get(str(run.manifest.get("weight_digest")), [])
        rule = rule_of(chosen_by, str(run.manifest.get("model")))
        gated.append(GatedRun(name, *decide(place, developments=own, threshold=rule)))
    return gated


def _by_weights(developments: Sequence[Place | str], runs: Sequence[Run]) -> dict[str, list[Place | str]]:
    """Development runs by the digest of their weights; one that fits no run is refused."""
    weights = {str(run.manifest.get("weight_digest")) for run in runs}
    fitting: dict[str, list[Place | str]] = {}
    for path in developments:
        digest = str(load_run(path).manifest.get("weight_digest"))
        if digest not in weights:
            raise SightlineError(f"development run {path} has other weights than every run that is gated")
        fitting.setdefault(digest, []).append(path)
    return fitting


def run_gate(
    run: RunPlace,
    rules: Iterable[str],
    *,
    developments: Sequence[Place | str] = (),
    threshold: ThresholdLike | None = None,
    least_n: int = LEAST_N,
    allow_partial: bool = False,
    draws: int = DRAWS,
    seed: int = SEED,
) -> tuple[list[Outcome], list[str]]:
    """Decides every rule on one run; returns the outcomes and the lines that say what is wrong with the run.

    A rule whose metric concerns fewer than ``least_n`` probes is refused, and so is every rule on an unfinished run
    unless ``allow_partial``.
    """
    rules = list(rules)
    parsed = [parse_rule(text) for text in rules]
    if not parsed:
        raise SightlineError(f"the gate has no rule; {EXAMPLE.replace('write', 'add --rule,')}")
    source = read_source([run], developments=developments, threshold=threshold)
    audited = source.runs[0]
    for rule in parsed:
        for term in rule.terms:
            _check_arm(term.arm, audited.frame, audited.run.arms)
    outcomes = [_decide(rule, audited.frame, least_n, draws, seed) for rule in parsed]
    if any(METRICS[rule.left.metric].reads_answers for rule in parsed):
        least = min(LEAST_IMAGES, least_n)
        nothing = nothing_to_read(audited.frame, least_images=least, draws=draws, seed=seed)
        outcomes = [_of_silent(outcome, nothing) for outcome in outcomes]
    if audited.run.unfinished:
        outcomes = [_of_unfinished(outcome, audited.run.unfinished, allow_partial) for outcome in outcomes]
    named = [term.arm for rule in parsed for term in rule.terms]
    ranked = any(METRICS[rule.left.metric].form == "auroc" for rule in parsed)
    largest = int(audited.frame["arm"].value_counts().max())
    fewer = [words] if ranked and (words := ranked_words(largest, draws)) else []
    return outcomes, [*source.notes, *fewer, *renamings(rules), *oracle_notes(named, audited.frame)]


def _of_silent(outcome: Outcome, nothing: str) -> Outcome:
    """Refused where the rule reads answers and ``nothing`` says why they cannot be read, unless it has no interval."""
    readable = not nothing or not METRICS[outcome.rule.left.metric].reads_answers or not math.isfinite(outcome.low)
    return outcome if readable else replace(outcome, verdict="refused", words=nothing)


def _of_unfinished(outcome: Outcome, unfinished: str, allowed: bool) -> Outcome:
    """The outcome on the rows that are there: refused, unless it was asked for; its words say it in both cases."""
    if allowed:
        return replace(outcome, words=f"{outcome.words}; {unfinished}")
    return replace(outcome, verdict="refused", words=f"{unfinished} (--allow-partial decides on the rows so far)")


def _check_arm(arm: str, frame: pd.DataFrame, written: list[str]) -> None:
    arms = [str(name) for name in frame["arm"].unique()]
    if arm in arms:
        return
    if arm in written:
        raise SightlineError(f"arm '{arm}' has no usable row yet: finish the run, or look at its margins")
    close = difflib.get_close_matches(arm, arms, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"arms: {', '.join(arms)}"
    raise SightlineError(f"the run has no arm '{arm}'; {hint}")


def _concerned(frame: pd.DataFrame, metric: Metric) -> int:
    """How many probes of an arm the metric averages over; 0 where the rows cannot tell."""
    try:
        return int(POPULATIONS[metric.over](arm_rows(frame)).sum())
    except SightlineError:
        return 0


def _decide(rule: Rule, frame: pd.DataFrame, least_n: int, draws: int, seed: int) -> Outcome:
    metric, arm = rule.left.metric, rule.left.arm
    if rule.right is None:
        line = arm_summary(frame[frame["arm"] == arm], metrics=[metric], draws=draws, seed=seed).iloc[0]
        value, low, high = (float(line[metric + suffix]) for suffix in ("", "_low", "_high"))
    else:
        pair = frame[frame["arm"].isin([arm, rule.right.arm])]
        line = paired_differences(pair, rule.right.arm, metrics=[metric], draws=draws, seed=seed).iloc[0]
        value, low, high = float(line["diff"]), float(line["low"]), float(line["high"])
    by_wilson = rule.right is None and metric == line["wilson"]
    reason = str(line["reason"] or "")
    n = min(_concerned(frame[frame["arm"] == term.arm], METRICS[metric]) for term in rule.terms)
    if not (math.isfinite(low) and math.isfinite(high)):
        return Outcome(rule, "undecided", value, low, high, n, f"no interval: {reason or 'too few images'}")
    if n < least_n:
        few = f"it concerns {n} probes ({METRICS[metric].over}), fewer than the least n of {least_n} (--least-n)"
        return Outcome(rule, "refused", value, low, high, n, few)
    near, far = (low, high) if rule.at_least else (high, low)
    if _holds(near, rule):
        verdict: Decision = "passed"
    else:
        verdict = "undecided" if _holds(far, rule) else "failed"
    side = "lower" if rule.at_least else "upper"
    edge = format_value(near, "signed" if rule.right else "score")
    words = {
        "passed": f"{side} bound {edge} holds",
        "undecided": f"{side} bound {edge} does not hold, although part of the interval does: "
        f"more images would decide{_how_many(rule, frame, value, by_wilson)}",
        "failed": f"the whole interval breaks the rule ({side} bound {edge})",
    }[verdict]
    return Outcome(rule, verdict, value, low, high, n, words)


def _how_many(rule: Rule, frame: pd.DataFrame, value: float, by_wilson: bool) -> str:
    """How many images would probably decide the rule if value and spread stay what they are; "" where none would."""
    metric = METRICS[rule.left.metric]
    left = arm_rows(frame[frame["arm"] == rule.left.arm])
    try:
        if by_wilson:  # shares that do not vary would say that any two images are enough
            needed = images_for_wilson(left, metric, value, rule.bound)
        elif rule.right is None:
            needed = images_needed(image_shares(left, metric), value - rule.bound)
        else:
            right = arm_rows(frame[frame["arm"] == rule.right.arm])
            needed = images_needed(image_differences(left, right, metric), value - rule.bound)
    except SightlineError:
        return ""
    return f", about {needed} instead of {left.n_images}" if needed < MOST_IMAGES else ""


def _holds(value: float, rule: Rule) -> bool:
    # A bound such as 0.3 is compared with sums of doubles: differences in the last bits are not evidence.
    gap = value - rule.bound if rule.at_least else rule.bound - value
    return gap > 1e-12 if rule.strict else gap >= -1e-12
