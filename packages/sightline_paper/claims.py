"""Sentences of the paper about a table, and what rows make of each: held, refuted or open.

Most are rules in the language of ``sightline gate`` about two arms of a population, image by image or question by
question:

    hfpr(target:0.3) - hfpr(random:0.3) > 0
    equal(accuracy(target:0.3), accuracy(full), 0.02)

The others name what decides them: a measured cell of their table, or a function of ``measures``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from scipy.stats import norm

from sightline.core.table import MINUS, format_value
from sightline.errors import SightlineError
from sightline.gate.rules import Rule
from sightline.statistics.arm_rows import plain_rows
from sightline.statistics.intervals import EQUIVALENCE_LEVEL, LEVEL
from sightline.statistics.metrics import METRICS
from sightline.statistics.paired import equivalence, holm
from sightline.statistics.summaries import nothing_to_read
from sightline_paper.lines import AT_ZERO, SHARED, Line, Measured, compared, ends, paired, rows_of, usual_needs
from sightline_paper.models import INTERNVL, MODELS
from sightline_paper.needs import Need, merged
from sightline_paper.probe_sets import DEVELOPMENT
from sightline_paper.study import PROBE_SETS, Study

Outcome = Literal["holds", "fails", "open", "not judged", "not measured"]
Side = Literal["above", "below", "equal"]
"""What a sentence says of a difference: above zero, below it, or within a margin of it."""
ALPHA = 0.05
EQUIVALENT: dict[str, Outcome] = {"equal": "holds", "different": "fails", "open": "open"}


@dataclass(frozen=True)
class Judgement:
    """What became of a claim, in a sentence."""

    outcome: Outcome
    words: str
    p: float = math.nan
    """Of the test behind it; not a number where something was counted rather than tested."""


@dataclass(frozen=True)
class Claim:
    """A sentence of the paper about a table, and how rows decide it."""

    sentence: str
    decide: Callable[[Study], Judgement]
    needs: tuple[Need, ...] = ()
    answers: bool = True
    """Whether it is about what models say; masks and times can be judged whatever is answered."""

    def judge(self, study: Study, models: Iterable[str] = ()) -> Judgement:
        """``models`` are those of its table, for a claim that names none."""
        try:
            found = self.decide(study)
        except SightlineError as error:
            return Judgement("not measured", str(error))
        concerned = dict.fromkeys(need.model for need in self.needs) or dict.fromkeys(models)
        strange = [f"{name} for {MODELS[model].title}" for model in concerned if (name := study.stand_in(model))]
        if strange or study.options.demo:
            reason = ", ".join(strange) or "drawn pages"
            return Judgement("not judged", f"{found.words} ({reason}: a stand-in decides nothing)")
        silent = (silence(study, need) for need in self.needs) if self.answers else ()
        reason = next(filter(None, silent), "")
        return Judgement("open", f"{found.words}; {reason}") if reason else found


def silence(study: Study, need: Need) -> str:
    """Why nothing can be read from a model's answers, InternVL's at Full's threshold; nothing where something can."""

    def make() -> str:
        threshold = SHARED if need.model == INTERNVL and need.probes.startswith(DEVELOPMENT) else AT_ZERO
        line = Line((), (), need.model, need.probes, "", "", need.box_source, threshold, need.scorer)
        try:
            rows = plain_rows(rows_of(study, line))
        except SightlineError:  # rows of another set decided the claim
            return ""
        return nothing_to_read(rows, draws=study.options.draws)

    return study.remembered(("silence", need.run), make)


def corrected(found: Sequence[Judgement]) -> list[Judgement]:
    """Holm's correction for the number of tests of one table: what does not survive it is open."""
    tested = [index for index, each in enumerate(found) if not math.isnan(each.p)]
    adjusted = dict(zip(tested, holm([found[index].p for index in tested]), strict=True))
    return [
        replace(each, outcome="open", words=f"{each.words} (p = {each.p:.2g}, with Holm {adjusted[index]:.2g})")
        if each.outcome in ("holds", "fails") and adjusted.get(index, 0.0) > ALPHA
        else each
        for index, each in enumerate(found)
    ]


def judgement(
    found: Measured, words: str, expects: Side = "above", margin: float = math.nan, narrow: Measured | None = None
) -> Judgement:
    """What an interval says of a claim that a number lies above zero, below it, or within a margin of it.

    Equal is two one-sided tests, and asks for the 90% interval, ``narrow``. Tests read the error back from the 95% one:
    (value - low) / 1.96 towards the lower side, (high - value) / 1.96 towards the upper.
    """
    value, low, high = found.value, found.low, found.high
    if not isinstance(value, float | int) or not low < high:
        return Judgement("open", f"{words}; no interval", 1.0)
    error_down, error_up = ((end or math.inf) / norm.ppf(0.5 + LEVEL / 2) for end in (value - low, high - value))

    def above(bound: float) -> float:
        return float(norm.sf((value - bound) / error_down))

    def below(bound: float) -> float:
        return float(norm.cdf((value - bound) / error_up))

    if expects == "equal":
        once = norm.ppf(EQUIVALENCE_LEVEL / 2 + 0.5)
        narrow = narrow or Measured(value, value - once * error_down, value + once * error_up)
        outcome: Outcome = EQUIVALENT[equivalence(narrow.low, narrow.high, margin)]
        p = min(above(margin), below(-margin)) if outcome == "fails" else max(above(-margin), below(margin))
        return Judgement(outcome, f"{words} (90% within ±{margin:g}?)", p)
    p = min(1.0, 2.0 * min(above(0.0), below(0.0)))
    if low <= 0.0 <= high:
        return Judgement("open", words, p)
    return Judgement("holds" if (low > 0.0) == (expects == "above") else "fails", words, p)


def interval_words(found: Measured) -> str:
    """``+0.050 [+0.010, +0.090]``"""
    return f"{found.value:+.3f} [{found.low:+.3f}, {found.high:+.3f}]".replace("-", MINUS)


def rule_claim(sentence: str, rule: Rule, line: Line, other: Line) -> Claim:
    """A claim by a rule of the gate about two arms: ``line`` minus ``other``, which may be a line of another run.

    Margins are ours where the paper states none: 0.02, of hFPR 0.05.
    """
    if rule.right is None or (rule.margin is None and rule.bound != 0.0):
        raise SightlineError(
            f"the claim '{rule.text}' says nothing of two arms: write metric(arm) - metric(other) > 0, < 0, or "
            "equal(metric(arm), metric(other), margin)"
        )
    metric = rule.left.metric
    expects: Side = "equal" if rule.margin is not None else "above" if rule.at_least else "below"
    margin = rule.margin if rule.margin is not None else math.nan
    in_words = PROBE_SETS[line.probes].scorer == "open" and not line.scorer

    def answers(study: Study) -> Judgement:
        found = paired(study, line, other, metric)
        narrow = paired(study, line, other, metric, EQUIVALENCE_LEVEL) if expects == "equal" else None
        sides = [line.arm, other.arm]
        if line.box_source != other.box_source:
            sides = [f"{each.arm} with {each.box_source}" for each in (line, other)]
        names = " minus ".join(sides)
        words = f"{METRICS[metric].label} of {names}: {interval_words(found)}"
        return judgement(found, words, expects, margin, narrow)

    def scores(study: Study) -> Judgement:
        by = "" if metric == "score" else metric
        found = compared(study, line.model, line.probes, line.arm, other.arm, rule=by).change
        change = f"{format_value(found.value, 'signed')} {ends(found.low, found.high)}"
        return judgement(found, f"{metric} of {line.arm} minus {other.arm}: {change}", expects, margin)

    needs = tuple(merged([*usual_needs(line), *usual_needs(other)]))
    return Claim(sentence, scores if in_words else answers, needs, in_words or METRICS[metric].reads_answers)


def cell_claim(
    sentence: str,
    measure: Callable[[Study], Measured],
    needs: Iterable[Need],
    *,
    words: str,
    expects: Side = "above",
    margin: float = math.nan,
    otherwise: str = "",
) -> Claim:
    """A claim about the interval of one measured cell; ``otherwise`` is why it is not measured where it has none."""

    def decide(study: Study) -> Judgement:
        found = measure(study)
        if otherwise and math.isnan(found.low):
            raise SightlineError(otherwise)
        return judgement(found, f"{words} {interval_words(found)}", expects, margin)

    return Claim(sentence, decide, tuple(needs))
