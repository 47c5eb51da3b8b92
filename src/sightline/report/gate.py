"""A gate for continuous integration: rules decided on the bound of an interval, never on the point.

    accuracy(target:0.3) >= 0.7                      a metric of an arm
    accuracy(target:0.3) - accuracy(full) >= -0.02   a paired difference between two arms

``>=`` holds when the lower bound does, ``<=`` when the upper bound does. What the interval cannot decide is not passed.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

import pandas as pd

from sightline.errors import SightlineError
from sightline.report.source import read_source
from sightline.report.table import format_range, format_value
from sightline.statistics.bootstrap import DRAWS, SEED
from sightline.statistics.metrics import METRICS
from sightline.statistics.metrics.base import renaming, spelling
from sightline.statistics.power import image_differences, image_shares, images_needed
from sightline.statistics.summaries import arm_rows, arm_summary, paired_differences

MOST_IMAGES = 1_000_000
"""A number of images that nobody will collect says nothing more."""
Decision = Literal["passed", "failed", "undecided"]


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


@dataclass(frozen=True)
class Outcome:
    """What a rule came to. ``undecided``: the interval holds the bound, or there is no interval."""

    rule: Rule
    verdict: Decision
    value: float
    low: float
    high: float
    words: str

    @property
    def passed(self) -> bool:
        return self.verdict == "passed"


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


def run_gate(
    run: Path | str, rules: Iterable[str], *, draws: int = DRAWS, seed: int = SEED
) -> tuple[list[Outcome], list[str]]:
    """Decides every rule on one run; returns the outcomes and the lines that say what is wrong with the run."""
    rules = list(rules)
    parsed = [parse_rule(text) for text in rules]
    if not parsed:
        raise SightlineError(f"the gate has no rule; {_EXAMPLE.replace('write', 'add --rule,')}")
    source = read_source([run])
    frame = source.runs[0].frame
    for rule in parsed:
        for term in (rule.left, *([rule.right] if rule.right else [])):
            _check_arm(term.arm, frame, source.runs[0].run.arms)
    return [_decide(rule, frame, draws, seed) for rule in parsed], [*source.notes, *_renamings(rules)]


def _check_arm(arm: str, frame: pd.DataFrame, written: list[str]) -> None:
    arms = [str(name) for name in frame["arm"].unique()]
    if arm in arms:
        return
    if arm in written:
        raise SightlineError(f"arm '{arm}' has no usable row yet: finish the run, or look at its margins")
    close = difflib.get_close_matches(arm, arms, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"arms: {', '.join(arms)}"
    raise SightlineError(f"the run has no arm '{arm}'; {hint}")


def _decide(rule: Rule, frame: pd.DataFrame, draws: int, seed: int) -> Outcome:
    metric, arm = rule.left.metric, rule.left.arm
    if rule.right is None:
        line = arm_summary(frame[frame["arm"] == arm], metrics=[metric], draws=draws, seed=seed).iloc[0]
        value, low, high = (float(line[metric + suffix]) for suffix in ("", "_low", "_high"))
    else:
        pair = frame[frame["arm"].isin([arm, rule.right.arm])]
        line = paired_differences(pair, rule.right.arm, metrics=[metric], draws=draws, seed=seed).iloc[0]
        value, low, high = float(line["diff"]), float(line["low"]), float(line["high"])
    reason = str(line["reason"] or "")
    if not (math.isfinite(low) and math.isfinite(high)):
        return Outcome(rule, "undecided", value, low, high, f"no interval: {reason or 'too few images'}")
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
        f"more images would decide{_how_many(rule, frame, value)}",
        "failed": f"the whole interval breaks the rule ({side} bound {edge})",
    }[verdict]
    return Outcome(rule, verdict, value, low, high, words)


def _how_many(rule: Rule, frame: pd.DataFrame, value: float) -> str:
    """How many images would probably decide the rule if value and spread stay what they are; "" where none would."""
    metric = METRICS[rule.left.metric]
    left = arm_rows(frame[frame["arm"] == rule.left.arm])
    try:
        if rule.right is None:
            shares = image_shares(left, metric)
        else:
            shares = image_differences(left, arm_rows(frame[frame["arm"] == rule.right.arm]), metric)
        needed = images_needed(shares, value - rule.bound)
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


def markdown(outcomes: Sequence[Outcome], run: str) -> str:
    """A summary for a pull request or a job page."""
    passed = sum(outcome.passed for outcome in outcomes)
    lines = [
        f"### Sightline gate: {passed} of {len(outcomes)} rules passed ({run})",
        "",
        "| | Rule | Value | 95% interval | Why |",
        "| --- | --- | ---: | ---: | --- |",
    ]
    for outcome in outcomes:
        rule = outcome.rule.text.replace("|", "\\|")
        lines.append(
            f"| {outcome.verdict} | `{rule}` | {value_words(outcome)} | {interval_words(outcome)} | {outcome.words} |"
        )
    return "\n".join(lines) + "\n"


def junit(outcomes: Sequence[Outcome], run: str) -> bytes:
    """JUnit XML: one test case per rule."""
    suite = ElementTree.Element(
        "testsuite",
        name="sightline gate",
        tests=str(len(outcomes)),
        failures=str(sum(not outcome.passed for outcome in outcomes)),
        errors="0",
        skipped="0",
    )
    for outcome in outcomes:
        case = ElementTree.SubElement(suite, "testcase", classname=f"sightline.gate.{run}", name=outcome.rule.text)
        detail = f"value {value_words(outcome)}, 95% interval {interval_words(outcome) or 'none'}: {outcome.words}"
        if not outcome.passed:
            failure = ElementTree.SubElement(case, "failure", type=outcome.verdict, message=outcome.words)
            failure.text = detail
        else:
            ElementTree.SubElement(case, "system-out").text = detail
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return bytes(ElementTree.tostring(root, encoding="utf-8", xml_declaration=True))
