"""A gate for continuous integration: rules decided on rows by the bound of an interval, never the point.

``>=`` holds when the lower bound does, ``<=`` when the upper bound does, equality when the 90% interval of the
difference lies within the margin (two one-sided tests at 5 %). What the interval cannot decide is not passed, and
neither is what rests on too few probes, on an unfinished run or on answers that say nothing (a model at chance): such
a rule is refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal
from xml.etree import ElementTree

import pandas as pd

from sightline.core.table import TableColumn, format_range, format_value, markdown_rows
from sightline.errors import SightlineError, refuse_unknown
from sightline.gate.rules import EVERY_METHOD, EXAMPLE, REFERENCE, Rule, Verdict, decide_interval, parse_rule
from sightline.places.listing import Place
from sightline.rows.reader import oracle_words
from sightline.rows.run import Run, load_run
from sightline.rows.source import read_source
from sightline.statistics.arm_rows import are_in_words
from sightline.statistics.bootstrap import DRAWS, SEED, ImageSums, OneThread, ranked_words
from sightline.statistics.intervals import EQUIVALENCE_LEVEL, LEVEL
from sightline.statistics.metrics import METRICS, POPULATIONS, Metric, why_not
from sightline.statistics.paired import image_differences, image_shares, images_needed, images_to_bound
from sightline.statistics.summaries import (
    LEAST_IMAGES,
    LEAST_N,
    arm_rows,
    arm_summary,
    nothing_to_read,
    paired_differences,
)
from sightline.statistics.thresholds import ThresholdLike, ThresholdRule, check_models, read_thresholds, threshold_for
from sightline.store.folder import RunPlace

MOST_IMAGES = 1_000_000
"""A number of images that nobody will collect says nothing more."""
Decision = Verdict | Literal["refused"]


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
    images_needed: int = 0
    """About how many images would decide what is undecided; 0 where that cannot be said."""

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


@OneThread()
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
    thresholds = _thresholds(threshold, [str(run.manifest.get("model")) for run in opened])
    fitting = _by_weights(developments, opened)
    decide = partial(run_gate, rules=rules, least_n=least_n, allow_partial=allow_partial, draws=draws, seed=seed)
    gated = []
    for name, place, run, chosen in zip(names, runs, opened, thresholds, strict=True):
        own = fitting.get(str(run.manifest.get("weight_digest")), [])
        gated.append(GatedRun(name, *decide(place, developments=own, threshold=chosen)))
    return gated


def _thresholds(asked: ThresholdLike | None, models: Sequence[str]) -> list[ThresholdRule | None]:
    """What names the threshold of each run, by its model; None where answers are as recorded."""
    if asked is None:
        return [None] * len(models)
    by_model = read_thresholds(asked)
    check_models(by_model, models)
    return [threshold_for(by_model, model) for model in models]


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
    texts = list(rules)
    if not texts:
        raise SightlineError(f"the gate has no rule; {EXAMPLE.replace('write', 'add --rule,')}")
    templates = [text for text in texts if EVERY_METHOD in text or REFERENCE in text]
    parsed = [parse_rule(text) for text in texts if text not in templates]
    source = read_source([run], developments=developments, threshold=threshold)
    audited = source.runs[0]
    filled, left_out = fill_rules(templates, audited.frame)
    parsed += filled
    if not parsed:
        raise SightlineError(f"no rule is about what {audited.run.path} has measured: {'; '.join(left_out)}")
    kinds = sorted(str(name) for name in audited.frame["kind"].dropna().unique())
    for rule in parsed:
        for term in rule.terms:
            _check_arm(term.arm, audited.frame, audited.run.arms)
            if term.kind and term.kind not in kinds:
                raise SightlineError(f"the run has no questions of kind '{term.kind}'; kinds: {', '.join(kinds)}")
    outcomes = [decide_rule(rule, audited.frame, least_n=least_n, draws=draws, seed=seed) for rule in parsed]
    if any(METRICS[rule.left.metric].reads_answers for rule in parsed):
        least = min(LEAST_IMAGES, least_n)
        read = partial(nothing_to_read, least_images=least, draws=draws, seed=seed)
        nothing = {kind: read(_telling(audited.frame, kind)) for kind in {"", *(rule.left.kind for rule in parsed)}}
        outcomes = [_of_silent(outcome, nothing[""] or nothing[outcome.rule.left.kind]) for outcome in outcomes]
    if audited.run.unfinished:
        said = f"{audited.run.unfinished} (--allow-partial decides on the rows so far)"
        outcomes = [
            replace(outcome, words=f"{outcome.words}; {audited.run.unfinished}")
            if allow_partial
            else replace(outcome, verdict="refused", words=said)
            for outcome in outcomes
        ]
    named = [term.arm for rule in parsed for term in rule.terms]
    ranked = any(METRICS[rule.left.metric].form == "auroc" for rule in parsed)
    largest = int(audited.frame["arm"].value_counts().max())
    fewer = [words] if ranked and (words := ranked_words(largest, draws)) else []
    return outcomes, [*source.notes, *fewer, *left_out, *oracle_notes(named, audited.frame)]


def fill_rules(templates: Sequence[str], frame: pd.DataFrame) -> tuple[list[Rule], list[str]]:
    """Rules with each method of a run in the place of ``{method}``, and a line for each that the run cannot decide.

    Methods are the pruned arms that are neither controls nor oracles.
    """
    told = frame[["arm", "selector", "regime"]].drop_duplicates("arm").astype(str)
    keep = frame.groupby(frame["arm"].astype(str))["keep"].mean()
    told = told[(told["selector"] == "full") | (told["arm"].map(keep) < 1.0)]
    full = told.loc[told["selector"] == "full", "arm"]
    methods = told.loc[~told["regime"].isin(["full", "box-free control", "oracle"]), "arm"]
    kinds = set(frame["kind"].dropna().astype(str))
    found: list[Rule] = []
    left_out: list[str] = []
    for text in templates:
        if full.empty and REFERENCE in text:
            left_out.append(f"left out: {text} (the run has no full arm)")
            continue
        own = [parse_rule(text.replace(REFERENCE, next(iter(full), "")).replace(EVERY_METHOD, arm)) for arm in methods]
        if own and own[0].left.kind and own[0].left.kind not in kinds:
            left_out.append(f"left out: {text} (no questions of kind '{own[0].left.kind}')")
            continue
        lacking = [_lacking(rule, frame) for rule in own]
        found += [rule for rule, reason in zip(own, lacking, strict=True) if not reason]
        if reasons := list(dict.fromkeys(filter(None, lacking))):
            left_out.append(f"left out: {text} ({'; '.join(reasons)})")
    if templates and methods.empty:
        left_out = ["rules about {method} are left out: the run has no pruned arm that is neither control nor oracle"]
    return found, left_out


def _lacking(rule: Rule, frame: pd.DataFrame) -> str:
    """Why the rows of a rule's arms cannot have its metric; "" where they can."""
    of_kind = _of_kind(frame, rule.left.kind)
    try:
        reasons = (why_not(METRICS[t.metric], arm_rows(of_kind[of_kind["arm"] == t.arm])) for t in rule.terms)
        return next(filter(None, reasons), "")
    except SightlineError as error:
        return str(error)


def _of_kind(frame: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Rows of questions of a kind; all where none is named."""
    found: pd.DataFrame = frame[frame["kind"] == kind] if kind else frame
    return found


def _telling(frame: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Rows that tell whether a model reads questions of a kind.

    With yes/no questions of one label those are all of the run: on this label alone a model may lean either way.
    """
    own = _of_kind(frame, kind)
    return own if own["label"].nunique() > 1 or are_in_words(own).any() else frame


def _of_silent(outcome: Outcome, nothing: str) -> Outcome:
    """Refused where the rule reads answers and ``nothing`` says why they cannot be read, unless it has no interval."""
    readable = not nothing or not METRICS[outcome.rule.left.metric].reads_answers or not math.isfinite(outcome.low)
    return outcome if readable else replace(outcome, verdict="refused", words=nothing)


def _check_arm(arm: str, frame: pd.DataFrame, written: list[str]) -> None:
    arms = [str(name) for name in frame["arm"].unique()]
    if arm in written and arm not in arms:
        raise SightlineError(
            f"arm '{arm}' has no row to decide on: a gate leaves out arms with an intervention, and rows that are "
            "still to come or whose margin is not finite"
        )
    refuse_unknown(arm, arms, f"the run has no arm '{arm}'", "arms:")


def oracle_notes(arms: Iterable[str], frame: pd.DataFrame) -> list[str]:
    """A line for each of the named arms that is an oracle: whatever is decided about it, it cannot be deployed."""
    facts = frame[["arm", "regime", "box_source"]].drop_duplicates("arm").set_index("arm")
    return [
        f"{arm} {oracle_words(facts.loc[arm, 'box_source'])}: a diagnostic, not a method that could be deployed"
        for arm in dict.fromkeys(arms)
        if arm in facts.index and facts.loc[arm, "regime"] == "oracle"
    ]


def _concerned(frame: pd.DataFrame, metric: Metric) -> int:
    """How many probes of an arm the metric averages over; 0 where the rows cannot tell."""
    try:
        return int(POPULATIONS[metric.over](arm_rows(frame)).sum())
    except SightlineError:
        return 0


def decide_rule(
    rule: Rule, frame: pd.DataFrame, *, least_n: int = LEAST_N, draws: int = DRAWS, seed: int = SEED
) -> Outcome:
    """What a rule comes to on the plain rows of a run's arms, of its kind of question where it names one."""
    frame = _of_kind(frame, rule.left.kind)
    metric, arm = rule.left.metric, rule.left.arm
    level = EQUIVALENCE_LEVEL if rule.margin else LEVEL
    if rule.right is None:
        own = frame[frame["arm"] == arm]
        line = arm_summary(own, metrics=[metric], draws=draws, seed=seed, level=level).iloc[0]
        value, low, high = (float(line[metric + suffix]) for suffix in ("", "_low", "_high"))
        certain, few_differ = metric == line["certain"], metric == line["few_differ"]
    else:
        pair = frame[frame["arm"].isin([arm, rule.right.arm])]
        line = paired_differences(pair, rule.right.arm, metrics=[metric], draws=draws, seed=seed, level=level).iloc[0]
        value, low, high = float(line["diff"]), float(line["low"]), float(line["high"])
        certain, few_differ = line["kind"] == "certain", line["kind"] == "unseen"
    reason = str(line["reason"] or "")
    n = min(_concerned(frame[frame["arm"] == term.arm], METRICS[metric]) for term in rule.terms)
    if not certain and not (math.isfinite(low) and math.isfinite(high)):
        return Outcome(rule, "undecided", value, low, high, n, f"no interval: {reason or 'too few images'}")
    if n < least_n:
        few = f"it concerns {n} probes ({METRICS[metric].over}), fewer than the least n of {least_n} (--least-n)"
        return Outcome(rule, "refused", value, low, high, n, few)
    bounds = (value, value) if certain else (low, high)
    verdict = decide_interval(rule, *bounds)
    words = _words(rule, verdict, *bounds)
    if certain:
        words += "; it holds by construction, which no image could change"
    elif verdict == "undecided":
        needed, there = images_to_decide(rule, frame, value, few_differ)
        words += f": more images would decide{f', about {needed} instead of {there}' if needed else ''}"
        return Outcome(rule, verdict, value, low, high, n, words, needed)
    return Outcome(rule, verdict, value, low, high, n, words)


def _words(rule: Rule, verdict: Decision, low: float, high: float) -> str:
    if rule.margin:
        return {
            "passed": f"the 90% interval lies within ±{rule.margin:g} (two one-sided tests at 5 %)",
            "undecided": f"the 90% interval reaches beyond ±{rule.margin:g} and into it",
            "failed": f"the whole 90% interval lies beyond ±{rule.margin:g}",
        }[verdict]
    side = "lower" if rule.at_least else "upper"
    edge = format_value(low if rule.at_least else high, "signed" if rule.right else "score")
    return {
        "passed": f"{side} bound {edge} holds",
        "undecided": f"{side} bound {edge} does not hold, although part of the interval does",
        "failed": f"the whole interval breaks the rule ({side} bound {edge})",
    }[verdict]


def images_to_decide(rule: Rule, frame: pd.DataFrame, value: float, few_differ: bool) -> tuple[int, int]:
    """How many images would probably decide the rule if value and spread stay what they are, and how many there are.

    The first is 0 where no number that anybody will collect would.
    """
    metric = METRICS[rule.left.metric]
    left, *others = (arm_rows(frame[frame["arm"] == term.arm]) for term in rule.terms)
    # The bound that is to be told from the value; of two, the nearer one.
    bound = math.copysign(rule.margin, value) if rule.margin else rule.bound
    level = EQUIVALENCE_LEVEL if rule.margin else LEVEL
    try:
        if few_differ:  # shares that hardly vary would say that any two images are enough
            own, *beside = (ImageSums.of(rows, [metric]).shares(metric) for rows in (left, *others))
            needed = images_to_bound(own.minus(beside[0]) if beside else own, bound, level=level)
        elif not others:
            needed = images_needed(image_shares(left, metric), value - bound, level=level)
        else:
            needed = images_needed(image_differences(left, others[0], metric), value - bound, level=level)
    except SightlineError:
        return 0, left.n_images
    return needed if needed < MOST_IMAGES else 0, left.n_images


# What a gate decided, for a job page (Markdown) and for test runners (JUnit XML).


def interval_words(outcome: Outcome) -> str:
    found = format_range(outcome.low, outcome.high, "signed" if outcome.rule.right else "score")
    return f"{found} (90%)" if found and outcome.rule.margin else found


def value_words(outcome: Outcome) -> str:
    return format_value(outcome.value, "signed" if outcome.rule.right else "score")


def markdown(runs: Sequence[GatedRun]) -> str:
    """A summary for a pull request or a job page: per run one table and its notes."""
    return "".join(_markdown_table(run) for run in runs)


def _markdown_table(run: GatedRun) -> str:
    passed = sum(outcome.passed for outcome in run.outcomes)
    numbers = [TableColumn(title, title, "number") for title in ("n", "Value", "95% interval")]
    rows = []
    for outcome in run.outcomes:
        rule = outcome.rule.text.replace("|", "\\|")
        figures = str(outcome.n), value_words(outcome), interval_words(outcome)
        rows.append((outcome.verdict, f"`{rule}`", *figures, outcome.words.replace("|", "\\|")))
    lines = [
        f"### Sightline gate: {passed} of {len(run.outcomes)} rules passed ({run.name})",
        "",
        *markdown_rows(["", "Rule", *numbers, "Why"], rows),
    ]
    if run.notes:
        lines += ["", *(f"- {note}" for note in run.notes)]
    return "\n".join(lines) + "\n"


def junit(runs: Sequence[GatedRun]) -> bytes:
    """JUnit XML: one suite per run, one test case per rule."""
    root = ElementTree.Element("testsuites")
    root.extend(_junit_suite(run) for run in runs)
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))


def _junit_suite(run: GatedRun) -> ElementTree.Element:
    suite = ElementTree.Element(
        "testsuite",
        name="sightline gate",
        tests=str(len(run.outcomes)),
        failures=str(sum(not outcome.passed for outcome in run.outcomes)),
        errors="0",
        skipped="0",
    )
    if run.notes:
        properties = ElementTree.SubElement(suite, "properties")
        for note in run.notes:
            ElementTree.SubElement(properties, "property", name="note", value=note)
    for outcome in run.outcomes:
        case = ElementTree.SubElement(suite, "testcase", classname=f"sightline.gate.{run.name}", name=outcome.rule.text)
        interval = interval_words(outcome) or "none"
        detail = f"value {value_words(outcome)}, 95% interval {interval}, n = {outcome.n}: {outcome.words}"
        if not outcome.passed:
            failure = ElementTree.SubElement(case, "failure", type=outcome.verdict, message=outcome.words)
            failure.text = detail
        else:
            ElementTree.SubElement(case, "system-out").text = detail
    return suite
