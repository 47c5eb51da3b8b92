"""The language of rules: what a gate holds runs to, and what a page claims of numbers.

    accuracy(target:0.3) >= 0.7                        a metric of an arm
    accuracy(target:0.3) - accuracy(full) >= -0.02     a difference between two arms
    equal(accuracy(target:0.3), accuracy(full), 0.02)  equal within a margin
    swapped(target:0.3, amount) <= 0.01                the same on questions of one kind

``parse_rule`` reads one; ``decide_interval`` says what an interval makes of it. Deciding one on the rows of a run is
``decisions``.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from sightline.errors import SightlineError, nearest
from sightline.places.listing import file_errors, read_text
from sightline.statistics.metrics import METRICS, spelling
from sightline.statistics.paired import equivalence

_COMPARISON = re.compile(r"^(?P<left>.*?)(?P<sign>>=|<=|≥|≤|>|<)\s*(?P<bound>[-+−]?[\d.]+(?:[eE][-+]?\d+)?)\s*$")
_EQUAL = re.compile(r"^equal\s*\((?P<terms>.*)\)$", re.IGNORECASE)
_NUMBER = re.compile(r"^[-+−]?[\d.]+(?:[eE][-+]?\d+)?$")
ROUNDING = 1e-12
"""A bound such as 0.3 is compared with sums of doubles: differences in the last bits are not evidence."""
Verdict = Literal["passed", "failed", "undecided"]
SHIPPED = ("documents",)
"""Files of rules that come with the package, by name."""
EVERY_METHOD, REFERENCE = "{method}", "{full}"
"""What stands in a rule for each pruned arm of a run that is neither control nor oracle, and for its Full."""
EXAMPLE = 'write for example "accuracy(target:0.3) - accuracy(full) >= -0.02"'


@dataclass(frozen=True)
class Term:
    metric: str
    arm: str
    kind: str = ""
    """Only questions of this kind count; all where none is named."""


@dataclass(frozen=True)
class Rule:
    """metric(arm) [- metric(other)] >= or <= bound, or both within ``margin`` of one another."""

    text: str
    left: Term
    right: Term | None
    at_least: bool
    strict: bool
    bound: float
    margin: float | None = None
    """Set in a rule of equality, which has no other bound."""

    @property
    def terms(self) -> tuple[Term, ...]:
        return (self.left,) if self.right is None else (self.left, self.right)

    def holds(self, value: float) -> bool:
        """Whether a number is on the side of the bound that the rule asks for; not for a rule of equality."""
        gap = value - self.bound if self.at_least else self.bound - value
        return gap > ROUNDING if self.strict else gap >= -ROUNDING


def decide_interval(rule: Rule, low: float, high: float) -> Verdict:
    """What an interval of the rule's value, or of its difference, says: decided by a bound, never by the point.

    ``>=`` passes when the lower bound holds and fails when not even the upper one does; equality passes when all of the
    interval lies within the margin, and fails when all of it lies beyond.
    """
    if rule.margin:
        found: dict[str, Verdict] = {"equal": "passed", "different": "failed", "open": "undecided"}
        return found[equivalence(low, high, rule.margin)]
    near, far = (low, high) if rule.at_least else (high, low)
    if rule.holds(near):
        return "passed"
    return "undecided" if rule.holds(far) else "failed"


def parse_rule(text: str) -> Rule:
    """Reads one rule; a metric is checked here, an arm when the run is known."""
    equal = _EQUAL.match(text.strip())
    if equal is not None:
        return _equality(equal["terms"], text)
    match = _COMPARISON.match(text.strip())
    if match is None:
        raise SightlineError(f"cannot read the rule '{text}': it needs >= or <= and a number; {EXAMPLE}")
    bound = _number(match["bound"], text)
    left, rest = _term(match["left"], text)
    right = None
    if rest:
        if rest[0] not in "-−":
            raise SightlineError(
                f"cannot read the rule '{text}': after the first term comes - or a comparison; {EXAMPLE}"
            )
        right, rest = _term(rest[1:], text)
        if rest:
            raise SightlineError(f"cannot read the rule '{text}': '{rest}' is too much; {EXAMPLE}")
        _check_pair(left, right, text)
    sign = match["sign"]
    return _breakable(Rule(text.strip(), left, right, sign in (">=", "≥", ">"), sign in ("<", ">"), bound))


def _equality(terms: str, rule: str) -> Rule:
    left, rest = _term(terms, rule)
    right, rest = _term(rest[1:], rule) if rest[:1] == "," and "(" in rest else (None, rest)
    if right is None or not _NUMBER.match(rest.removeprefix(",").strip()):
        raise SightlineError(
            f"cannot read the rule '{rule}': equality needs a margin, as in equal(accuracy(a), accuracy(b), 0.02)"
        )
    margin = _number(rest.removeprefix(",").strip(), rule)
    _check_pair(left, right, rule)
    if not margin > 0.0:
        raise SightlineError(f"the rule '{rule}' has a margin of {margin:g}: a margin must be positive")
    return _breakable(Rule(rule.strip(), left, right, at_least=True, strict=False, bound=-margin, margin=margin))


def _breakable(rule: Rule) -> Rule:
    """The rule, refused where whatever the metric may be keeps to it: a gate must not pass on that."""
    low, high = METRICS[rule.left.metric].limits
    if rule.right is not None:
        low, high = low - high, high - low
    if rule.holds(low) and (rule.margin or rule.holds(high)):
        what = "the difference" if rule.right else rule.left.metric
        raise SightlineError(
            f"nothing could break the rule '{rule.text}': {what} always lies between {low:g} and {high:g}"
        )
    return rule


def _number(text: str, rule: str) -> float:
    try:
        number = float(text.replace("−", "-"))
    except ValueError:
        raise SightlineError(f"cannot read the rule '{rule}': '{text}' is not a number") from None
    if not math.isfinite(number):
        raise SightlineError(f"cannot read the rule '{rule}': '{text}' is too large for a bound")
    return number


def _check_pair(left: Term, right: Term, rule: str) -> None:
    if right.metric != left.metric:
        raise SightlineError(
            f"the rule '{rule}' compares {left.metric} with {right.metric}: a difference needs one metric"
        )
    if right.kind != left.kind:
        raise SightlineError(f"the rule '{rule}' compares questions of two kinds: name the same kind in both terms")
    if right.arm == left.arm:
        raise SightlineError(f"the rule '{rule}' compares arm '{left.arm}' with itself")


def _term(text: str, rule: str) -> tuple[Term, str]:
    """One ``metric(arm)`` or ``metric(arm, kind)`` and what follows it; the arm may hold balanced parentheses."""
    text = text.strip()
    name, opening, rest = text.partition("(")
    depth, end = 1, -1
    for i, character in enumerate(rest):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            end = i
            break
    if not opening or end < 0:
        raise SightlineError(f"cannot read the rule '{rule}': '{text or rule}' is not metric(arm); {EXAMPLE}")
    arm, _, kind = (part.strip() for part in rest[:end].rpartition(","))
    if not re.fullmatch(r"\w+", kind) or not arm:  # a comma of the arm's own stands before an argument
        arm, kind = rest[:end].strip(), ""
    return Term(find_metric(name.strip()), arm, kind), rest[end + 1 :].strip()


def find_metric(name: str) -> str:
    """The metric that a rule means, whatever the spelling of case and underscores, or an error with a guess."""
    found = METRICS.spellings().get(spelling(name))
    if found is None:
        known = sorted(METRICS)
        hint = nearest(name.lower(), known, f"known: {', '.join(known)}")
        raise SightlineError(f"unknown metric '{name}'; {hint}")
    return found.name


def read_rules(path: Path) -> list[str]:
    """The rules of a file: one a line; a ``#`` at its start or after a space begins a comment.

    A bare name of ``SHIPPED`` means the file that comes with the package, unless such a file lies here.
    """
    try:
        shipped = str(path) in SHIPPED and not path.exists()
        with file_errors(f"cannot read the rules in {path}"):
            lines = read_text(Path(__file__).parent / f"{path}.rules" if shipped else path).split("\n")
    except UnicodeDecodeError:
        raise SightlineError(f"cannot read the rules in {path}: not a text file in UTF-8") from None
    rules = [rule for line in lines if (rule := re.sub(r"(^|\s)#.*", "", line).strip())]
    if not rules:
        raise SightlineError(f"{path} has no rule; {EXAMPLE}")
    return rules
