"""A gate for continuous integration: rules decided on the bound of an interval, never on the point.

    accuracy(target:0.3) >= 0.7                      a metric of an arm
    accuracy(target:0.3) - accuracy(full) >= -0.02   a paired difference between two arms

``>=`` holds when the lower bound does, ``<=`` when the upper bound does. What the interval cannot decide is not passed,
and neither is what rests on too few probes or on an unfinished run: such a rule is refused.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import pandas as pd

from sightline.errors import SightlineError
from sightline.report.source import read_source
from sightline.report.table import format_range, format_value
from sightline.statistics.bootstrap import DRAWS, SEED
from sightline.statistics.metrics import METRICS, POPULATIONS, Metric
from sightline.statistics.metrics.base import renaming, spelling
from sightline.statistics.power import image_differences, image_shares, images_for_wilson, images_needed
from sightline.statistics.summaries import arm_rows, arm_summary, paired_differences

MOST_IMAGES = 1_000_000
"""A number of images that nobody will collect says nothing more."""
LEAST_N = 50
"""A rule over fewer probes than this is refused: an interval of so few depends on a handful of them."""
Decision = Literal["passed", "failed", "undecided", "refused"]


@dataclass(frozen=True)
class Term:
    metric: str
    arm: str


@dataclass(frozen=True)
class Rule:
    """metric(arm) [- metric(other)] >= or <= bound."""

    text: str
    left: Term
    right: Term | None
    at_least: bool
    strict: bool
    bound: float

    @property
    def terms(self) -> tuple[Term, ...]:
        return (self.left,) if self.right is None else (self.left, self.right)


@dataclass(frozen=True)
class Outcome:
    """What a rule came to on one run.

    ``undecided``: the interval holds the bound, or there is no interval. ``refused``: whatever the interval says, too
    few probes are behind it, or a run that is not finished.
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
    """All rules on one run, and the lines that say what is wrong with it."""

    name: str
    outcomes: Sequence[Outcome]
    notes: Sequence[str] = ()

    @property
    def passed(self) -> bool:
        return all(outcome.passed for outcome in self.outcomes)


_COMPARISON = re.compile(r"^(?P<left>.*?)(?P<sign>>=|<=|≥|≤|>|<)\s*(?P<bound>[-+−]?[\d.]+(?:[eE][-+]?\d+)?)\s*$")
_EXAMPLE = 'write for example "accuracy(target:0.3) - accuracy(full) >= -0.02"'


def parse_rule(text: str) -> Rule:
    """Reads one rule; a metric is checked here, an arm when the run is known."""
    match = _COMPARISON.match(text.strip())
    if match is None:
        raise SightlineError(f"cannot read the rule '{text}': it needs >= or <= and a number; {_EXAMPLE}")
    try:
        bound = float(match["bound"].replace("−", "-"))
    except ValueError:
        raise SightlineError(f"cannot read the rule '{text}': '{match['bound']}' is not a number") from None
    left, rest = _term(match["left"], text)
    right = None
    if rest:
        if rest[0] not in "-−":
            raise SightlineError(
                f"cannot read the rule '{text}': after the first term comes - or a comparison; {_EXAMPLE}"
            )
        right, rest = _term(rest[1:], text)
        if rest:
            raise SightlineError(f"cannot read the rule '{text}': '{rest}' is too much; {_EXAMPLE}")
        if right.metric != left.metric:
            raise SightlineError(
                f"the rule '{text}' subtracts {right.metric} from {left.metric}: a difference needs one metric"
            )
        if right.arm == left.arm:
            raise SightlineError(f"the rule '{text}' compares arm '{left.arm}' with itself")
    sign = match["sign"]
    return Rule(text.strip(), left, right, sign in (">=", "≥", ">"), sign in ("<", ">"), bound)


def _term(text: str, rule: str) -> tuple[Term, str]:
    """One ``metric(arm)`` and what follows it; the arm may hold balanced parentheses of its own."""
    text = text.strip()
    name, opening, rest = text.partition("(")
    depth, end = 1, -1
    for i, character in enumerate(rest):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            end = i
            break
    if not opening or end < 0:
        raise SightlineError(f"cannot read the rule '{rule}': '{text or rule}' is not metric(arm); {_EXAMPLE}")
    return Term(find_metric(name.strip()), rest[:end].strip()), rest[end + 1 :].strip()


def find_metric(name: str) -> str:
    """The metric that a rule means, whatever the spelling of case and underscores, or an error with a guess."""
    known = METRICS.spellings()
    if spelling(name) in known:
        return known[spelling(name)].name
    close = difflib.get_close_matches(spelling(name), known, n=1)
    hint = f"did you mean '{known[close[0]].name}'?" if close else f"known: {', '.join(sorted(METRICS))}"
    raise SightlineError(f"unknown metric '{name}'; {hint}")


def _renamings(rules: Iterable[str]) -> list[str]:
    """One hint for each former name of a metric that the rules use."""
    former = {spelling(name): metric for metric in METRICS.values() for name in metric.former_names}
    used = dict.fromkeys(name for rule in rules for name in re.findall(r"([\w-]+)\s*\(", rule))
    return [renaming(name, former[spelling(name)]) for name in used if spelling(name) in former]


def read_rules(path: Path) -> list[str]:
    """The rules of a file: one a line; a ``#`` at its start or after a space begins a comment."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise SightlineError(f"cannot read the rules in {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SightlineError(f"cannot read the rules in {path}: not a text file in UTF-8") from None
    rules = [rule for line in lines if (rule := re.sub(r"(^|\s)#.*", "", line).strip())]
    if not rules:
        raise SightlineError(f"{path} has no rule; {_EXAMPLE}")
    return rules


def gate_runs(
    runs: Sequence[Path],
    rules: Iterable[str],
    *,
    least_n: int = LEAST_N,
    allow_partial: bool = False,
    draws: int = DRAWS,
    seed: int = SEED,
) -> list[GatedRun]:
    """Decides every rule on each run. Runs are called by their folders, or by their paths where folders are alike."""
    rules = list(rules)
    names = [run.resolve().name for run in runs]
    if len(set(names)) < len(names):
        names = [str(run) for run in runs]
    decide = partial(run_gate, rules=rules, least_n=least_n, allow_partial=allow_partial, draws=draws, seed=seed)
    return [GatedRun(name, *decide(run)) for name, run in zip(names, runs, strict=True)]


def run_gate(
    run: Path | str,
    rules: Iterable[str],
    *,
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
        raise SightlineError(f"the gate has no rule; {_EXAMPLE.replace('write', 'add --rule,')}")
    source = read_source([run])
    audited = source.runs[0]
    for rule in parsed:
        for term in rule.terms:
            _check_arm(term.arm, audited.frame, audited.run.arms)
    outcomes = [_decide(rule, audited.frame, least_n, draws, seed) for rule in parsed]
    if audited.run.unfinished:
        outcomes = [_of_unfinished(outcome, audited.run.unfinished, allow_partial) for outcome in outcomes]
    return outcomes, [*source.notes, *_renamings(rules)]


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


def interval_words(outcome: Outcome) -> str:
    return format_range(outcome.low, outcome.high, "signed" if outcome.rule.right else "score")


def value_words(outcome: Outcome) -> str:
    return format_value(outcome.value, "signed" if outcome.rule.right else "score")


def markdown(runs: Sequence[GatedRun]) -> str:
    """A summary for a pull request or a job page: one table per run."""
    return "".join(_markdown_table(run) for run in runs)


def _markdown_table(run: GatedRun) -> str:
    passed = sum(outcome.passed for outcome in run.outcomes)
    lines = [
        f"### Sightline gate: {passed} of {len(run.outcomes)} rules passed ({run.name})",
        "",
        "| | Rule | n | Value | 95% interval | Why |",
        "| --- | --- | ---: | ---: | ---: | --- |",
    ]
    for outcome in run.outcomes:
        rule = outcome.rule.text.replace("|", "\\|")
        lines.append(
            f"| {outcome.verdict} | `{rule}` | {outcome.n} | {value_words(outcome)} | {interval_words(outcome)} | "
            f"{outcome.words} |"
        )
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
