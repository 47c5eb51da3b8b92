"""The verdict of an audit: may this model be pruned, how far, what breaks first, what is saved. In words, per method.

Decisions are those of the gate: a budget is within the margin when the bound of the paired interval is. Controls and
oracles are no methods; they say what a method has to beat.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from sightline.errors import SightlineError
from sightline.gate.decisions import Outcome, decide_rule
from sightline.gate.rules import Rule, Term
from sightline.places.listing import Place
from sightline.report.cases import Case
from sightline.report.columns import family, listed, share
from sightline.report.summary import ReportSummary, summarise
from sightline.rows.source import Audited, Source, read_source
from sightline.statistics.arm_rows import FloatArray, as_names
from sightline.statistics.bootstrap import DRAWS, SEED
from sightline.statistics.legibility_law import HeldOut, LegibilityLaw, fit_law, leave_one_out, smallest_keep
from sightline.statistics.summaries import paired_differences

MARGIN = 0.02
"""The loss of right answers that is accepted where nobody says otherwise."""
LEAST_PROBES = 30
"""The gate refuses rules about fewer than 50 probes, for pipelines; a reader is told the bound from so many on."""
LEAST_OF_KIND = 5
"""Questions of a kind before it is named as what breaks first."""
SHARE_OF_BEST = 0.95
"""Legible enough: this share of what the model answers right however large the text is."""
Decision = Literal["prune", "more pages", "no", "nothing"]
OUTCOMES = {
    "swapped": "another text of the page is given",
    "digit_error": "digits are wrong",
    "invented": "something is given that stands nowhere on the page",
    "silent": "nothing is answered",
    "wrong": "the answer is wrong",
    "missed": "a text that stands there is not found",
    "false alarm": "a text is found that does not stand there",
}
"""What can become of a question -> in words, within a sentence."""
KINDS = {
    "amount": "amounts", "date": "dates", "identifier": "identifiers", "name": "names", "total": "totals",
    "table_cell": "table cells", "transcript": "pages",
}  # fmt: skip
"""Kinds of fields as sentences call them."""


@dataclass(frozen=True)
class Breakage:
    """What rises most against Full under an arm, and a question that shows it."""

    arm: str
    outcome: str
    kind: str
    """Empty: questions of every kind."""
    count: int
    of: int
    full_count: int
    probe: str
    """A question that Full answers right and the arm does not, in this way; empty where there is none."""

    @property
    def words(self) -> str:
        asked = kind_words(self.kind)
        return (
            f"under {self.arm} {OUTCOMES[self.outcome]} in {self.count} of {self.of} {asked}, under Full in "
            f"{self.full_count}"
        )


@dataclass(frozen=True)
class MethodVerdict:
    """What an audit says of one method."""

    run: str
    method: str
    decision: Decision
    arm: str
    """The arm that the sentence is about: the smallest budget within the margin, else the largest that was run."""
    keep: float
    says: str
    breaks: Breakage | None = None
    saves: str = ""
    beside: tuple[str, ...] = ()
    """Controls that it is not better than, in words."""
    more_pages: int = 0

    @property
    def lines(self) -> list[str]:
        """As plain text: the sentence, and what stands below it."""
        found = [f"{self.method}: {self.says}"]
        if self.breaks is not None:
            found.append(f"  breaks first: {self.breaks.words}.")
        if self.saves:
            found.append(f"  saves: {self.saves}.")
        return found + [f"  beside controls: {words}." for words in self.beside]


@dataclass(frozen=True)
class Plan:
    """What the law of legibility says of the pages of a run; how far it can be trusted is said by ``held``."""

    law: LegibilityLaw
    smallest: float
    """Pixels of character height at Full, of the least legible text asked for."""
    needed: float
    """Pixels for ``SHARE_OF_BEST`` of what the model answers right at best."""
    keep: float
    """The smallest share of tokens for pages shown smaller, within the margin; NaN where there is none below 1."""
    held: tuple[HeldOut, ...]
    margin: float
    tried: bool
    """Whether the law of the plan, and not only that of the other way of losing pixels, is among those tried."""

    @property
    def words(self) -> str:
        wanted = f"this model needs about {self.needed:.0f} px for {share(SHARE_OF_BEST)} of its best"
        found = f"The smallest text asked for is {self.smallest:.0f} px high at Full; {wanted}"
        if 0 < self.smallest < self.needed:
            found += f", which the smallest has on pages shown {self.needed / self.smallest:.1f} times as wide and high"
        found += ". "
        if math.isfinite(self.keep):
            side = math.sqrt(self.keep)
            found += (
                f"By this law pages could be shown with {share(self.keep)} of their tokens (resize:{self.keep:g}), at "
                f"{share(side)} of their width and height, within the margin: an estimate until that arm is run"
            )
        else:
            found += "By this law pages cannot be shown any smaller within the margin"
        if not self.held:
            return f"{found}. With so few arms the law could not be tried on one that it was not fitted to."
        if not self.tried:
            found += ". With so few budgets of resize its law could not be tried; that of pruned pages could"
        errors = [abs(each.error) for each in self.held]
        worst = max(self.held, key=lambda each: abs(each.error))
        trust = "" if max(errors) <= self.margin else " That is more than the margin, which it therefore cannot tell."
        return (
            f"{found}. On arms that it was not fitted to, the law of their kind is off by "
            f"{share(float(np.mean(errors)))} of answers on average and by {share(max(errors))} at most ({worst.name}: "
            f"{share(worst.expected)} expected, {share(worst.found)} found).{trust}"
        )


@dataclass(frozen=True)
class AuditVerdict:
    """What an audit comes to."""

    margin: float
    reference: tuple[str, ...]
    """What Full does, one sentence per run, or why nothing can be said of it."""
    methods: tuple[MethodVerdict, ...]
    plans: tuple[tuple[str, str], ...] = ()
    """(run, the planner's sentence, or why it has none)."""

    @property
    def says_something(self) -> bool:
        """Whether any method is decided on."""
        return any(each.decision in ("prune", "no") for each in self.methods)

    @property
    def lines(self) -> list[str]:
        """As plain text."""
        found = [*self.reference, *(line for each in self.methods for line in each.lines)]
        return found + [f"planner: {words}" for _, words in self.plans]

    def as_dict(self) -> dict[str, Any]:
        """JSON-able."""
        return {**asdict(self), "says_something": self.says_something}

    def cases(self, source: Source) -> list[Case]:
        """The questions that show what breaks, for the gallery."""
        runs = {audited.name: index for index, audited in enumerate(source.runs)}
        found = []
        for each in self.methods:
            if each.breaks is not None and each.breaks.probe:
                arm = source.runs[runs[each.run]].shown_arms[each.breaks.arm]
                found.append(Case(each.breaks.probe, runs[each.run], arm))
        return found


def audit_verdict(
    source: Source | Place | Path | str,
    summary: ReportSummary | None = None,
    *,
    margin: float = MARGIN,
    draws: int = DRAWS,
    seed: int = SEED,
) -> AuditVerdict:
    """What the runs of a report, or one run folder, come to within a margin of right answers lost."""
    if not isinstance(source, Source):
        source = read_source([source])
    if summary is None:
        summary = summarise(source, draws, seed)
    reference: list[str] = []
    methods: list[MethodVerdict] = []
    plans: list[tuple[str, str]] = []
    for audited in source.runs:
        nothing = summary.says_nothing.get(audited.name)
        if nothing:
            reference.append(nothing)
            methods += [
                MethodVerdict(audited.name, name, "nothing", arms[0], math.nan, "nothing can be said of it here.")
                for name, arms in _methods(audited).items()
            ]
            continue
        if audited.full is None:
            reference.append(audited.said("there is no Full to compare with; amend the run with --arm full"))
            continue
        reference.append(audited.said(_full_words(audited, margin)))
        if not (own := _methods(audited)):
            reference.append(audited.said("no pruning method was run: there is nothing to decide."))
        methods += [_method(audited, name, arms, margin, draws, seed) for name, arms in own.items()]
        if (plan := plan_words(audited, margin)) is not None:
            plans.append((audited.name, audited.said(plan)))
    return AuditVerdict(margin, tuple(reference), tuple(methods), tuple(plans))


def kind_words(kind: str) -> str:
    """Questions of a kind, as they are called in a sentence."""
    return KINDS.get(kind) or (f"questions of kind {kind.replace('_', ' ')}" if kind else "questions")


def _frame(audited: Audited) -> pd.DataFrame:
    """Plain rows under the run's own names of arms, as plain strings."""
    return audited.frame.assign(arm=as_names(audited.frame["arm_name"]))


def _methods(audited: Audited) -> dict[str, list[str]]:
    """Method -> its arms, largest budget first; neither Full nor controls nor oracles."""
    told = audited.frame[["arm_name", "regime", "keep"]].assign(arm_name=as_names(audited.frame["arm_name"]))
    means = told.groupby("arm_name", sort=False)["keep"].mean()
    regimes = told.drop_duplicates("arm_name").set_index("arm_name")["regime"].astype(str)
    found: dict[str, list[str]] = {}
    for arm in means.sort_values(ascending=False, kind="stable").index:
        if regimes[arm] not in ("full", "box-free control", "oracle") and means[arm] < 1.0:
            found.setdefault(family(str(arm)), []).append(str(arm))
    return found


def _controls(audited: Audited, arm: str) -> list[str]:
    """The box-free controls with the budget of an arm, one seed of each."""
    told = audited.frame[["arm_name", "selector", "budget", "regime"]].drop_duplicates("arm_name").astype(str)
    budget = told.loc[told["arm_name"] == arm, "budget"].iloc[0]
    there = told[(told["regime"] == "box-free control") & (told["budget"] == budget)]
    return [str(name) for name in there.drop_duplicates("selector")["arm_name"]]


def _full_words(audited: Audited, margin: float) -> str:
    own = audited.frame[audited.frame["arm"] == audited.full]
    right = int(own["correct"].sum())
    return (
        f"Unpruned, the model answers {right} of {len(own)} questions on {own['image_id'].nunique()} pages right "
        f"({share(right / len(own))}). Asked is which budget loses at most {100 * margin:g}% of all answers, by the "
        "bound of a 95% interval."
    )


def loss_rule(arm: str, full: str, margin: float) -> Rule:
    """The gate's rule that an arm loses no more right answers than the margin."""
    text = f"accuracy({arm}) - accuracy({full}) >= {-margin:g}"
    return Rule(text, Term("accuracy", arm), Term("accuracy", full), at_least=True, strict=False, bound=-margin)


def _method(audited: Audited, name: str, arms: Sequence[str], margin: float, draws: int, seed: int) -> MethodVerdict:
    frame = _frame(audited)
    full = next(own for own, shown in audited.shown_arms.items() if shown == audited.full)
    keeps = frame.groupby("arm")["keep"].mean()
    found = {
        arm: decide_rule(loss_rule(arm, full, margin), frame, least_n=LEAST_PROBES, draws=draws, seed=seed)
        for arm in arms
    }
    # From the largest budget down: a smaller one that passes by chance is no answer where a larger one does not.
    safe = list(takewhile(lambda arm: found[arm].passed, arms))
    # What breaks first is seen at the largest budget below the safe ones at which anything rises at all.
    breaks = (what_breaks(frame, arm, full) for arm in arms if arm not in safe or len(safe) == len(arms))
    arm = safe[-1] if safe else arms[0]
    outcome, decision, more = found[arm], "prune", 0
    if not safe:
        decision = "no" if outcome.verdict == "failed" else "more pages"
        if decision == "more pages" and outcome.images_needed:
            more = max(1, outcome.images_needed - int(frame["image_id"].nunique()))
    return MethodVerdict(
        audited.name,
        name,
        decision,  # type: ignore[arg-type]
        arm,
        float(keeps[arm]),
        _says(arm, outcome, decision, float(keeps[arm]), more, len(arms)),
        next(filter(None, breaks), None),
        _saves(frame, arm, full, audited) if safe else "",
        tuple(_beside(frame, audited, arms, draws, seed)),
        more,
    )


def _says(arm: str, outcome: Outcome, decision: str, keep: float, more: int, budgets: int) -> str:
    lost, most = _points(-outcome.value), _points(-outcome.low)
    measured = f"{lost} of answers lost against Full, at most {most}"
    if decision == "prune":
        gained = outcome.value >= 0
        measured = f"nothing lost against Full, at most {most}" if gained else measured
        return f"may keep {share(keep)} of the visual tokens ({arm}): {measured}."
    tried = "the largest budget run" if budgets > 1 else "the only budget run"
    if decision == "no":
        return f"do not prune: even {arm}, {tried}, loses {lost} of answers, at least {_points(-outcome.high)}."
    if not math.isfinite(outcome.low):
        return f"not enough pages to bound the loss of {arm}, {tried} ({lost} found): {outcome.words}."
    leaning = "; so far it loses more than the margin" if outcome.value < outcome.rule.bound else ""
    if more:
        return f"not enough pages: about {more} more would decide on {arm}, {tried} ({measured}{leaning})."
    if outcome.verdict == "undecided":
        return f"no number of such pages would decide on {arm}, {tried}, within this margin: {measured}{leaning}."
    return f"not enough pages to decide on {arm}, {tried}: {measured}{leaning}."


def _points(value: float) -> str:
    """A share of answers in per cent with one digit; what is below nothing is nothing."""
    return "–" if not math.isfinite(value) else f"{100 * max(0.0, value):.1f}%"


def _saves(frame: pd.DataFrame, arm: str, full: str, audited: Audited) -> str:
    own, all_of_it = frame[frame["arm"] == arm], frame[frame["arm"] == full]
    tokens = f"{own['k_tokens'].mean():.0f} of {all_of_it['k_tokens'].mean():.0f} visual tokens a page are read"
    spent = [float(rows["language_ms"].mean()) for rows in (own, all_of_it)]
    if not all(map(math.isfinite, spent)) or min(spent) <= 0:
        return tokens
    device = audited.run.manifest.get("device")
    return (
        f"{tokens}; language model {spent[0]:.0f} instead of {spent[1]:.0f} ms a question, on this machine ({device})"
    )


def _beside(frame: pd.DataFrame, audited: Audited, arms: Sequence[str], draws: int, seed: int) -> Iterable[str]:
    """The arms of a method against the controls of their budgets, in right answers: first where they are no better."""
    better = []
    for arm in arms:
        for control in _controls(audited, arm):
            pair = frame[frame["arm"].isin([arm, control])]
            line = paired_differences(pair, control, metrics=["accuracy"], draws=draws, seed=seed).iloc[0]
            value, low, high = (float(line[key]) for key in ("diff", "low", "high"))
            if low > 0:
                better.append(f"{control} (by {_points(value)})")
                continue
            verb = "worse than" if high < 0 else "not shown to be better than"
            bounds = f": {_signed_points(value)}, {_signed_points(low)} to {_signed_points(high)}"
            yield f"{arm} is {verb} {control}{bounds if math.isfinite(low) else ''}"
    if better:
        yield f"at the same budget it answers more right than {listed(better, 4)}"


def _signed_points(value: float) -> str:
    text = f"{100 * value:+.1f}%"
    return text.lstrip("+") if float(text[:-1]) == 0 else text.replace("-", "−")


# What breaks first.


def outcomes_of(rows: pd.DataFrame) -> pd.Series[str]:
    """What became of each question: "right", or a key of ``OUTCOMES``."""
    right = rows["correct"].astype(bool)
    if "outcome" in rows and rows["outcome"].notna().any():
        named = rows["outcome"].astype(object).where(rows["outcome"].isin(list(OUTCOMES)), "wrong")
    elif set(rows["label"].unique()) <= {"yes", "no"}:
        named = pd.Series(np.where(rows["label"] == "yes", "missed", "false alarm"), index=rows.index)
    else:
        named = pd.Series("wrong", index=rows.index)
    found: pd.Series[str] = named.where(~right, "right").astype(str)
    return found


def what_breaks(frame: pd.DataFrame, arm: str, full: str) -> Breakage | None:
    """The outcome and kind of question that an arm most surely has more of than Full; None where nothing rises."""
    both = (frame[frame["arm"] == name] for name in (arm, full))
    own, before = (rows.assign(became=outcomes_of(rows)).set_index(as_names(rows["probe_id"])) for rows in both)
    shared = own.index.intersection(before.index)
    own, before = own.loc[shared], before.loc[shared]
    kinds = own["kind"].astype(object).fillna("").astype(str)
    best: tuple[tuple[float, float], Breakage] | None = None
    for kind in ["", *sorted(set(kinds) - {""})]:
        there = np.ones(len(own), dtype=bool) if not kind else (kinds == kind).to_numpy()
        if kind and (there.sum() < LEAST_OF_KIND or there.all()):
            continue
        for outcome in OUTCOMES:
            now, then = (int((rows["became"][there] == outcome).sum()) for rows in (own, before))
            # Surest first, as McNemar's statistic has it, and among equally sure ones the larger share of a kind.
            sure = ((now - then) / math.sqrt(max(1, now + then)), (now - then) / max(1, int(there.sum())))
            if now > then and (best is None or sure > best[0]):
                shown = own[there & (own["became"] == outcome) & (before["became"] == "right")]
                best = sure, Breakage(arm, outcome, kind, now, int(there.sum()), then, _clearest(shown))
    return None if best is None else best[1]


def _clearest(rows: pd.DataFrame) -> str:
    """The question whose wrong answer the model was surest of."""
    if rows.empty:
        return ""
    if "answer_loss" in rows and rows["answer_loss"].notna().any():
        return str(rows["answer_loss"].astype(float).idxmin())
    return str(rows.index[0])


# The planner.


def plan_of(audited: Audited, margin: float) -> Plan:
    """The law of pages shown smaller, or of pruned ones where none were; each is tried on arms of its own kind.

    Refuses what cannot be fitted.
    """
    rows = _frame(audited)
    rows = rows[rows["regime"].astype(str) != "oracle"]
    if "legibility" not in rows or rows["legibility"].isna().all():
        raise SightlineError("no answer says how large its text is: the rows have no legibility")
    how = rows["selector"].astype(str)
    shrunk, pruned = rows[how.isin(["full", "resize"])], rows[how != "resize"]
    planned = shrunk if (how == "resize").any() else pruned
    law = fit_law(*_answers(planned))
    if law.top < 0.05:
        raise SightlineError("no text is answered right however large it is: no law can be seen")
    at_full = rows.loc[how == "full", "legibility"].to_numpy(float)
    at_full = at_full[np.isfinite(at_full)]
    if not len(at_full):
        raise SightlineError("no full arm says how large the text of these pages is")
    full = set(rows.loc[how == "full", "arm"])
    held: list[HeldOut] = []
    for part in (shrunk, pruned):
        with suppress(SightlineError):
            held += leave_one_out([str(arm) for arm in part["arm"]], *_answers(part), always=full)
    tried = not {each.name for each in held}.isdisjoint(set(planned["arm"]) - full)
    keep = smallest_keep(law, at_full, margin)
    return Plan(law, float(at_full.min()), law.pixels_for(SHARE_OF_BEST), keep, tuple(held), margin, tried)


def _answers(rows: pd.DataFrame) -> tuple[FloatArray, FloatArray]:
    """Legibility in pixels, and whether an answer is right."""
    return rows["legibility"].to_numpy(float), rows["correct"].to_numpy(float)


def plan_words(audited: Audited, margin: float) -> str | None:
    """The planner's sentence, or the line that says why there is none; None where no row has a legibility.

    None of pages that are written down as a whole, too: their texts are of every size.
    """
    if "legibility" not in audited.frame or audited.frame["legibility"].isna().all() or "words_found" in audited.frame:
        return None
    try:
        return plan_of(audited, margin).words
    except SightlineError as error:
        return f"no plan from legibility: {error}"


def plan_lines(plan: Plan) -> Iterable[dict[str, Any]]:
    """Of each arm that was left out of the fit: what was expected and found."""
    for each in plan.held:
        yield {
            "arm": each.name, "n": each.answers, "expected": each.expected, "found": each.found, "error": each.error
        }  # fmt: skip
