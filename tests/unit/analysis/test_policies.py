"""Policies replayed from a run: tuned on one half, judged on the other, and the verdict in words."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sightline.analysis import policy_verdict
from sightline.analysis.policy_replay import AskedProbes, Replayed, fixed_answers
from sightline.analysis.policy_verdict import PolicyFigures, PolicyLimits, figures, penalised, tune, verdict
from sightline.core.selection import Budget
from sightline.policies.cascades import ConfidenceFallback
from sightline.policies.evidence_saturation import EvidenceSaturation
from sightline.rows.run import load_run
from tests.command_line import sightline
from tests.refusals import Refused
from tests.runs.yes_no import make_run, says_no

LEVELS = LOW, MID, HIGH = tuple(map(Budget.ratio, (0.15, 0.3, 0.5)))
ARMS = ("full", "target:0.15", "target:0.3", "target:0.5")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return load_run(make_run(tmp_path_factory.mktemp("tuning") / "run", images=60, arms=ARMS))


def test_sides_are_those_of_the_papers_pilots() -> None:
    rows = pd.DataFrame({"probe_id": ["a:1", "b:2"], "image_id": ["a", "b"], "label": ["yes", "no"]})
    by_image = [int(hashlib.sha1(f"textocr-{name}".encode()).hexdigest()[:8], 16) % 10 < 5 for name in "ab"]
    assert (AskedProbes.of(rows).sides == "dev").tolist() == by_image
    by_probe = [int(hashlib.md5(name.encode()).hexdigest()[:8], 16) % 2 == 0 for name in ("a:1", "b:2")]
    assert (AskedProbes.of(rows.assign(score=1.0)).sides == "dev").tolist() == by_probe
    assert AskedProbes.of(rows.assign(score=1.0, task=["docvqa", ""])).tasks.tolist() == ["docvqa", "all"]


def test_prices_are_those_of_the_papers_pilots_and_false_alarms_those_of_negatives() -> None:
    found = PolicyFigures("x", 10, {"a": 0.8, "b": 0.6}, 0.324, 0.4, 0.5)
    assert penalised(found, yes_or_no=True) == pytest.approx(0.7 - 2.0 * 0.1 - 0.05 * 0.4 - 0.02 * 0.5)
    assert penalised(found, yes_or_no=False) == pytest.approx(0.7 - 0.10 * 0.4)
    ids, images, negative = np.array(["a", "b", "c"]), np.array(["1", "1", "2"]), np.array([False, True, True])
    asked = AskedProbes(ids, images, np.array(["all"] * 3), negative, True)
    assert figures(Replayed("x", asked, np.array([0.0, 1.0, 0.0]), np.ones(3), np.ones(3), ("1.0",) * 3)).hfpr == 0.5
    assert np.isnan(figures(FIXED[FEW]).hfpr)


def test_a_replay_takes_the_answer_of_the_level_it_ends_at_and_pays_for_all(run: Any) -> None:
    policy = ConfidenceFallback(0.8)
    answers = fixed_answers(run, "target", LEVELS, policy)
    played = answers.replay(policy)
    frame = run.frame().set_index(["arm", "probe_id"])
    counts = set()
    for probe, score, keep, spent, levels in zip(
        played.asked.ids, played.scores, played.keep, played.spent, played.levels, strict=True
    ):
        rows = [frame.loc[(f"target:{level}", probe)] for level in (0.15, 0.3, 0.5)]
        sure = [abs(row["margin"]) >= 0.8 for row in rows]
        passes = sure.index(True) + 1 if any(sure) else 3
        counts.add(passes)
        assert levels == "/".join(["0.15", "0.3", "0.5"][:passes])
        assert score == rows[passes - 1]["correct"]
        assert keep == rows[passes - 1]["keep"]
        assert spent == pytest.approx(sum(row["keep"] for row in rows[:passes]))
    assert counts == {1, 2, 3}


@pytest.mark.parametrize("name", ["confidence_fallback", "learned_risk", "answer_stability"])
def test_the_held_out_half_has_no_say_in_what_is_chosen(run: Any, tmp_path: Path, name: str) -> None:
    def spoil(row: dict[str, Any]) -> None:
        """Every held-out answer turned round."""
        if int(hashlib.sha1(f"textocr-{row['image_id']}".encode()).hexdigest()[:8], 16) % 10 >= 5:
            row["margin"] = -row["margin"]
            row["predicted"] = "no" if row["predicted"] == "yes" else "yes"
            row["correct"] = not row["correct"]

    spoiled = load_run(make_run(tmp_path / "spoiled", images=60, arms=ARMS, edit_row=spoil))
    first, second = (tune(each, name, "target", LEVELS, draws=200) for each in (run, spoiled))
    assert first.tried >= 1
    assert str(first.policy) == str(second.policy)
    assert first.development == second.development
    assert first.verdict.policy.scores["all"] == pytest.approx(1.0 - second.verdict.policy.scores["all"])


def test_the_chosen_one_is_the_best_of_its_development_half_unless_it_is_given_whole(run: Any) -> None:
    tuned = tune(run, "confidence_fallback", "target", LEVELS, draws=200)
    answers = fixed_answers(run, "target", LEVELS, tuned.policy)
    development = answers.chosen(answers.asked.sides == "dev")
    tried = [ConfidenceFallback(value) for value in np.linspace(0.0, 3.0, 60)]
    best = max(penalised(figures(development.replay(one)), yes_or_no=True) for one in tried)
    assert penalised(tuned.development, yes_or_no=True) >= best - 0.01
    assert tuned.verdict.policy.n + tuned.development.n == len(answers.asked.ids)
    assert {each.name for each in tuned.verdict.fixed} == {"target:0.15", "target:0.3", "target:0.5"}
    assert tuned.verdict.reference == "target:0.5"
    whole = tune(run, "confidence_fallback", "target", LEVELS, given={"threshold": 0.7}, draws=200)
    assert (whole.policy, whole.tried) == (ConfidenceFallback(0.7), 1)


def test_token_scores_come_from_rows_of_the_policy_whatever_its_thresholds(run: Any, refused: Refused) -> None:
    arm = "policy:evidence_saturation:target:0.15/0.3/0.5"
    own = run.frame(texts=False).query("arm == 'target:0.3'")
    own = own.assign(arm=arm, plain_arm=arm, decided_on='{"mass": [0.4, 0.6, 0.9], "cells": [0.5, 1.0, 1.0]}')

    class Widened:
        """The run with an arm of the policy, whose rows say what was noticed."""

        path, manifest, arms = run.path, run.manifest, [*run.arms, arm]

        def frame(self, *, texts: bool = True) -> pd.DataFrame:
            return pd.concat([run.frame(texts=texts), own])

    widened: Any = Widened()
    asked = ("evidence_saturation", "target", LEVELS)
    refused(f"add --arm {arm}", tune, run, *asked, draws=200)
    refused("mass and cells together", tune, widened, *asked, given={"mass": 0.5}, draws=200)
    refused("decides on token scores", tune, widened, *asked, given={"temperature": 0.5}, draws=200)
    for mass, level in ((0.3, "0.15"), (0.5, "0.3"), (0.8, "0.5"), (0.95, "0.5")):
        policy = EvidenceSaturation(mass=mass, cells=0.5)
        assert set(fixed_answers(widened, "target", LEVELS, policy).replay(policy).levels) == {level}


def test_least_keep_is_the_fewest_tokens_near_the_reference(run: Any) -> None:
    answers = fixed_answers(run, "target", LEVELS, ConfidenceFallback(0.0))
    near = float(answers.scores[:, 2].mean())

    def of(score: float, keep: float) -> PolicyFigures:
        return PolicyFigures("x", 10, {"all": score}, 0.0, keep, keep)

    tried = [of(near - 0.02, 0.2), of(near - 0.014, 0.45), of(near, 0.4), of(near + 0.1, 0.6)]
    assert policy_verdict.chosen_by("least_keep", tried, answers, HIGH) == 2
    assert policy_verdict.chosen_by("least_keep", tried[:1], answers, HIGH) == 0, (
        "the best there is, where none is near"
    )


def test_what_cannot_be_fitted_or_judged_is_refused_in_one_line(run: Any, tmp_path: Path, refused: Refused) -> None:
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"selector": "grid"}, "has no arm 'grid:0.15'; run it too"),
        ({"levels": (LOW, Budget.ratio(0.9))}, "has no arm 'target:0.9'"),
        ({"name": "nonsense"}, "unknown policy"),
        ({"name": "answer_stability", "levels": (LOW, HIGH)}, "nothing to try"),
        ({"reference": Budget.ratio(0.9)}, "not among the levels"),
        ({"given": {"mass": 1.0}}, "is not an argument of confidence_fallback"),
        ({"objective": "cheap"}, "unknown objective"),
    )
    for changes, reason in cases:
        settings: dict[str, Any] = {"name": "confidence_fallback", "selector": "target", "levels": LEVELS, **changes}
        refused(reason, tune, run, *map(settings.pop, ("name", "selector", "levels")), draws=200, **settings)
    few = load_run(make_run(tmp_path / "few", images=6, arms=ARMS))
    refused("a policy needs 10 of each", tune, few, "confidence_fallback", "target", LEVELS, draws=200)
    short = played("short", [1.0, 1.0], [0.3, 0.3], tasks=TASKS[:2])
    for judge, reason in (
        (lambda: verdict(short, FIXED, MANY, draws=200), "have other probes"),
        (lambda: verdict(short, FIXED, Budget.ratio(0.5), draws=200), "no fixed arm at 0.5 to compare with"),
        (lambda: policy_verdict.judge_run(run), "has no arm with a policy"),
        (lambda: policy_verdict.judge_run(run, ["target:0.3"]), "has no policy to judge"),
    ):
        refused(reason, judge)


def test_no_policy_of_a_model_at_chance_is_a_go(tmp_path: Path) -> None:
    run = load_run(make_run(tmp_path / "run", images=120, arms=ARMS, edit_row=says_no))
    tuned = tune(run, "confidence_fallback", "target", LEVELS, draws=200)
    assert tuned.verdict.policy.n >= 50
    assert not tuned.verdict.go
    assert tuned.verdict.words.startswith("refused: the model answers at chance: nothing about pruning")


def test_the_command_exits_by_what_the_bounds_say(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "fitted", images=90, arms=ARMS)
    words = ["policy", "fit", folder, "--policy", "confidence_fallback", "--selector", "target", "--levels"]
    words += ["0.15/0.3/0.5", "--draws", 200, "--out", tmp_path / "p.json"]
    loose = ["--tolerance", "1", "--most-keep", "1", "--cost-below", "3"]
    assert "-> go" in sightline(*words, *loose).output
    sightline(*words, *loose, "--tolerance", 0, code=1)
    assert "fewer than the least n of 500" in sightline(*words, *loose, "--least-n", 500, code=1).output


FEW, MANY = Budget.ratio(0.3), Budget.ratio(0.7)
TASKS = ("textvqa", "textvqa", "docvqa", "docvqa")


def played(
    name: str, scores: Sequence[float], keep: Sequence[float], spent: Sequence[float] = (), tasks: Sequence[str] = TASKS
) -> Replayed:
    ids = np.array([f"p{i}" for i in range(len(scores))])
    asked = AskedProbes(ids, ids, np.array(tasks), np.zeros(len(ids), dtype=bool), yes_or_no=False)
    return Replayed(name, asked, np.array(scores), np.array(keep), np.array(spent or keep), ("0.3",) * len(ids))


FIXED = {
    FEW: played("target:0.3", [1.0, 0.0, 0.5, 0.5], [0.3] * 4),
    MANY: played("target:0.7", [1.0, 1.0, 0.5, 1.0], [0.7] * 4),
}


def judged(policy: Replayed, fixed: Mapping[Budget, Replayed], reference: Budget, *limits: PolicyLimits) -> Any:
    """On fifty of each probe, on images of their own: bounds are near the points."""

    def fifty(one: Replayed) -> Replayed:
        lists = [np.tile(each, 50).tolist() for each in (one.scores, one.keep, one.spent, one.asked.tasks)]
        return played(one.name, *lists)

    many = {budget: fifty(each) for budget, each in fixed.items()}
    return verdict(fifty(policy), many, reference, *limits, draws=400)


def test_the_three_questions_are_answered_in_words_and_each_bound_counts() -> None:
    cascade = played("cascade", [1.0, 1.0, 0.5, 0.938], [0.3, 0.7, 0.3, 0.7], [0.3, 1.0, 0.3, 1.0])
    found = judged(cascade, FIXED, MANY, PolicyLimits(cost=0.66))
    scores, keep, cost = found.parts
    assert scores.words.startswith("both task scores within 0.01 of fixed 70 %: no (-0.031 [-0.0")
    assert scores.words.endswith(" on docvqa)")
    assert keep.words.startswith("mean keep 0.500 [0.4")
    assert keep.words.endswith(" <= 0.60: yes")
    assert cost.words.startswith("overhead-aware cost 0.650 [0.6")
    assert cost.words.endswith(" < 0.66: not shown"), "the point is below, the upper bound is not"
    assert found.words == f"{scores.words}; {keep.words}; {cost.words} -> no-go"
    assert not found.go
    assert (found.policy.keep, found.policy.cost) == pytest.approx((0.5, 0.65))
    assert found.policy.scores == pytest.approx({"textvqa": 1.0, "docvqa": 0.719})
    assert found.policy.score == pytest.approx((1.0 + 0.719) / 2), "tasks count alike"
    for tolerance, most, below in ((0.5, 0.6, 0.75), (0.5, 0.51, 0.75), (0.5, 0.6, 0.66), (0.0, 0.6, 0.75)):
        found = judged(cascade, FIXED, MANY, PolicyLimits(tolerance, most, below))
        assert found.go is ((tolerance, most, below) == (0.5, 0.6, 0.75)), "each bound counts: a point is not enough"


def test_it_goes_when_all_three_hold_and_a_fixed_budget_that_does_as_well_for_less_is_named() -> None:
    found = judged(played("wise", [1.0, 1.0, 0.6, 1.0], [0.3, 0.7, 0.3, 0.7]), FIXED, MANY, PolicyLimits(0.05))
    assert found.words.endswith("-> go")
    assert found.go
    assert found.no_worse == [], "fixed 70 % scores as much, and costs more"
    idle = verdict(played("idle", [1.0, 0.0, 0.5, 0.5], [0.3] * 4, [0.6] * 4), FIXED, MANY, draws=200)
    assert idle.no_worse == ["target:0.3"]
    one = ["all"] * 4
    fixed = {budget: played(f"target:{budget}", [0.5] * 4, [budget.keep or 0] * 4, tasks=one) for budget in FIXED}
    higher = judged(played("better", [1.0] * 4, [0.5] * 4, tasks=one), fixed, MANY).parts[0]
    assert higher.passed, "a higher score than the reference's is near enough"
    assert higher.words.startswith("the score within 0.01 of fixed 70 %: yes (+0.500 [+0.")


def test_few_probes_and_answers_that_say_nothing_decide_nothing() -> None:
    wise = played("wise", [1.0, 1.0, 0.6, 1.0], [0.3, 0.7, 0.3, 0.7])
    found = verdict(wise, FIXED, MANY, draws=200)
    assert (found.go, found.words) == (False, "refused: 4 probes are fewer than the least n of 50 (--least-n)")
    found = verdict(wise, FIXED, MANY, nothing="the model answers at chance", least_n=4, draws=200)
    assert (found.go, found.words) == (False, "refused: the model answers at chance")
    alone = played("one", [1.0], [0.3], tasks=["all"])
    found = verdict(alone, {MANY: alone}, MANY, least_n=1, draws=200)
    assert found.words.count("not shown") == 3, "one image has no interval"


def test_scores_that_do_not_differ_on_few_images_are_not_shown_to_be_near() -> None:
    reference = played("target:0.7", [1.0, 0.0] * 30, [0.7] * 60, tasks=["all"] * 60)
    swapped = played("p", [0.0, 1.0] * 30, [0.5] * 60, tasks=["all"] * 60)
    found = verdict(swapped, {MANY: reference}, MANY, draws=500)
    assert found.differences["all"].value == 0.0
    assert "within 0.01 of fixed 70 %: not shown (+0.000 [-0.2" in found.words
    assert not found.go
