"""What each policy decides, computed by hand."""

import json
import math
import re
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sightline import Budget, SightlineError
from sightline.arms import parse_arm
from sightline.policies import POLICIES, LevelAnswer, Policy, Sight, TuningSample, learned_risk
from sightline.policies.cascades import AnswerStability, ConfidenceFallback
from sightline.policies.conformal import Conformal, LossBounds
from sightline.policies.evidence_saturation import EvidenceSaturation
from sightline.policies.risk_adaptive import RiskAdaptive, RiskBucket
from tests.refusals import Refused

LOW, MID, HIGH = LEVELS = tuple(map(Budget.ratio, (0.25, 0.5, 0.75)))
CORNERS = np.array([[x, y, x + 0.5, y + 0.5] for y in (0.0, 0.5) for x in (0.0, 0.5)], dtype=np.float32)
"""Four tokens, one in each quarter of the image."""


def levels_run(policy: Policy, noticed: Any, answers: Sequence[LevelAnswer]) -> list[Budget]:
    """The levels that a policy runs where each gives the answer that stands at its place."""
    passes: list[LevelAnswer] = []
    while (budget := policy.decide(LEVELS, noticed, passes)) is not None:
        passes.append(answers[LEVELS.index(budget)])
    return [one.budget for one in passes]


def said(*texts: str, confidences: Sequence[float] = (1.0, 1.0, 1.0)) -> list[LevelAnswer]:
    return [LevelAnswer(*each) for each in zip(LEVELS, texts, confidences, strict=True)]


def sight(scores: Sequence[float], *masks: Sequence[int], question: str = "What is the total?") -> Sight:
    return Sight("p", question, CORNERS, tuple(np.isin(np.arange(4), mask) for mask in masks), np.array(scores))


def test_saturation_weighs_tokens_by_their_scores() -> None:
    # exp(0), exp(0), exp(ln 2), exp(ln 4) over their sum 8: weights 1/8, 1/8, 2/8, 4/8, each in a block of its own.
    policy = EvidenceSaturation(mass=0.7, cells=0.5, temperature=1.0, side=2, active=0.2)
    noticed = policy.look(sight([0.0, 0.0, math.log(2), math.log(4)], [3], [2, 3], [1, 2, 3]))
    assert noticed["mass"] == pytest.approx([0.5, 0.75, 0.875])
    assert noticed["cells"] == pytest.approx([0.5, 1.0, 1.0]), "two blocks weigh 0.2 or more: those of tokens 2 and 3"
    assert noticed["entropy"] == pytest.approx((2 * math.log(8) / 8 + math.log(4) / 4 + math.log(2) / 2) / math.log(4))
    # x: 0.75 with weight 5/8, y: 0.75 with weight 6/8; variance 0.25 (w (1 - w)) each.
    spread = math.sqrt(0.25 * (5 / 8 * 3 / 8 + 6 / 8 * 2 / 8))
    assert noticed["dispersion"] == pytest.approx(spread / math.sqrt(0.5))
    assert policy.decide(LEVELS, noticed, []) == MID, "the lowest that holds 0.7 of the weight"
    assert policy.decide(LEVELS, noticed, said("a", "a", "a")[:1]) is None, "one answer is enough"
    for mass, cells, chosen in ((0.5, 0.5, LOW), (0.5, 0.75, MID), (0.75, 1, MID), (0.8, 0.5, HIGH), (1, 1, HIGH)):
        assert EvidenceSaturation(mass, cells).decide(LEVELS, noticed, []) == chosen, "lowest that passes both"
    noticed = EvidenceSaturation(side=2, active=0.9).look(sight([0, 0, 0, 0], [0], [0, 1], [0, 1, 2]))
    assert noticed["cells"] == [1.0, 1.0, 1.0]


def test_risks_are_ranks_and_budgets_in_proportion_to_them(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "risks.csv"
    path.write_text("probe_id,risk\na,0.1\nb,5\nc,5\nd,6\ne,100\n")  # the middle two are alike
    policy = RiskBucket(str(path))
    ranks = [policy.look(Sight(name, "", CORNERS))["risk"] for name in "abcdex"]
    assert ranks == [0.0, 0.375, 0.375, 0.75, 1.0, 0.5]
    thirds = [policy.decide(LEVELS, {"risk": risk}, []) for risk in (0.0, 0.33, 1 / 3, 0.66, 0.67, 1)]
    assert thirds == [LOW, LOW, MID, MID, HIGH, HIGH]
    ends = (Budget.ratio(0.15), Budget.ratio(0.7))
    chosen = [RiskAdaptive(str(path)).decide(ends, {"risk": risk}, []) for risk in (0.0, 0.5, 1.0)]
    assert [budget.keep for budget in chosen if budget] == pytest.approx([0.15, 0.425, 0.7])
    refused("write two", RiskAdaptive(str(path)).check_levels, LEVELS)


def test_a_file_without_risks_is_refused_with_its_arm(tmp_path: Path, refused: Refused) -> None:
    path = tmp_path / "risk.csv"
    for text, reason in (
        ("probe_id,score\na,1\n", "needs a column probe_id and a column risk"),
        ("probe_id,risk\na,high\n", "the risk 'high', which is not a number"),
        ("probe_id,risk\n", "has no lines"),
    ):
        path.write_text(text)
        refused(reason, parse_arm, f"policy:risk_bucket:target:0.3/0.7:file={path}")


def test_unsure_answers_are_asked_again_one_level_up() -> None:
    for sure, run in (
        ((1.2, 0, 0), [LOW]),
        ((1.1, 3, 0), [LOW, MID]),
        ((1.1, 1.1, 9), list(LEVELS)),
        ((0, 0, 0), list(LEVELS)),
    ):
        assert levels_run(ConfidenceFallback(1.2), {}, said("a", "b", "c", confidences=sure)) == run


def test_no_higher_threshold_runs_fewer_levels() -> None:
    draws = np.random.default_rng(0).exponential(size=(200, 3))
    answers = [said("a", "b", "c", confidences=line.tolist()) for line in draws]
    counts = [
        [len(levels_run(ConfidenceFallback(threshold), {}, each)) for each in answers]
        for threshold in (0.0, 0.2, 0.5, 1.0, 2.0, 50.0)
    ]
    assert (np.diff(counts, axis=0) >= 0).all()
    assert (set(counts[0]), set(counts[-1])) == ({1}, {3})


def test_a_cascade_stops_when_two_answers_agree(refused: Refused) -> None:
    for texts, levels in ((("Blue", " blue. ", "red"), 2), (("a", "b", "b"), 3), (("a", "b", "a"), 3)):
        assert levels_run(AnswerStability(), {}, said(*texts)) == list(LEVELS[:levels])
    refused("runs all of 3 levels whatever they say", AnswerStability(3).check_levels, LEVELS)


def samples(confidences: Sequence[float], low: Sequence[float], high: Sequence[float]) -> list[TuningSample]:
    made = []
    for sure, first, last in zip(confidences, low, high, strict=True):
        answers = {level: LevelAnswer(level, "x", sure) for level in LEVELS}
        made.append(TuningSample({}, answers, {LOW: first, MID: first, HIGH: last}))
    return made


def test_the_bound_is_mean_loss_and_two_standard_errors_of_the_surest() -> None:
    # Twelve samples by falling confidence; of the first ten one is lost, of the last two both.
    low = [1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0, 0]
    found = LossBounds.measured(LEVELS, samples(range(12, 0, -1), low, [1] * 12))

    def bound(losses: int, n: int) -> float:
        share = losses / n
        return share + 1.96 * math.sqrt(share * (1 - share) * n / (n - 1) / n)

    assert found.confidences == (2.5, 1.5, 1.0), "midway to the next sample"
    assert found.bounds == pytest.approx([bound(1, 10), bound(2, 11), bound(3, 12)])
    expected = [bound(1, 10), bound(1, 10), bound(2, 11), math.inf]
    assert [found.bound(sure) for sure in (99.0, 2.5, 2.4, 0.5)] == pytest.approx(expected)


def test_bounds_never_fall_and_who_may_lose_more_falls_back_less() -> None:
    rng = np.random.default_rng(1)
    found = LossBounds.measured(LEVELS, samples(rng.random(300).tolist(), rng.integers(0, 2, 300).tolist(), [1] * 300))
    assert (np.diff(found.bounds) > 0).all()
    assert (np.diff(found.confidences) < 0).all()
    kept = [[found.bound(sure) <= eps for sure in np.linspace(0, 1, 50)] for eps in (0.3, 0.45, 0.6, 0.9)]
    assert (np.diff(np.array(kept, dtype=int), axis=0) >= 0).all()


def test_an_answer_is_asked_for_again_where_too_much_may_be_lost() -> None:
    policy = Conformal.made_of(LossBounds((2.0, 1.0), (0.02, 0.2)), eps=0.05)
    for sure, run in ((2.5, [LOW]), (1.5, [LOW, HIGH]), (0.5, [LOW, HIGH])):
        assert levels_run(policy, {}, said("a", "b", "c", confidences=(sure, 0, 0))) == run


def test_the_regression_finds_what_separates_and_starts_from_the_rate_of_events() -> None:
    x = np.array([[value, 1.0] for value in np.linspace(-1, 1, 40)])
    found = learned_risk.fit_logistic(x, x[:, 0] > 0, learned_risk.Descent(500, 0.08, 0.02))
    assert found.weights[0] > 1.0
    assert found.weights[1] == 0.0, "a feature that never changes says nothing"
    assert found.risk([0.9, 1.0]) > 0.8 > 0.2 > found.risk([-0.9, 1.0])
    untrained = learned_risk.fit_logistic(x, np.arange(40) < 10, learned_risk.Descent(0, 0.08, 0.02))
    assert untrained.risk([0.0, 1.0]) == pytest.approx(0.98 * 0.25 + 0.01)


def risk_model(features: tuple[str, ...]) -> learned_risk.RiskModel:
    """The first feature is the log-odds."""
    count = len(features)
    logistic = learned_risk.Logistic((0.0,) * count, (1.0,) * count, (1.0,) + (0.0,) * (count - 1), 0.0)
    return learned_risk.RiskModel("question", features, logistic, (0.5, 0.9))


def test_a_learned_risk_is_cut_into_levels_and_runs_the_low_answer_first_if_it_reads_it() -> None:
    blind = learned_risk.LearnedRisk.made_of(risk_model(("question_words",)))
    for odds, chosen in ((-1.0, LOW), (0.0, MID), (1.0, MID), (3.0, HIGH)):
        assert levels_run(blind, {"question_words": odds}, said("a", "b", "c")) == [chosen], "before any answer"
    policy = learned_risk.LearnedRisk.made_of(risk_model(("confidence", "question_words")))
    for sure, run in ((-1.0, [LOW]), (1.0, [LOW, MID]), (3.0, [LOW, HIGH])):
        assert levels_run(policy, {"question_words": 3.0}, said("a", "b", "c", confidences=(sure, 0, 0))) == run


def test_features_of_question_and_masks() -> None:
    found = learned_risk.before_answer(sight([], [0, 3], [0, 1, 2], question="Which year and which total?"))
    assert found == pytest.approx(
        {
            "question_words": 5, "question_joins": 1, "question_fields": 1, "tokens": math.log(4),
            "mask_dispersion": math.sqrt(0.125) / math.sqrt(0.5), "mask_blocks": 2 / 16, "mask_stability": 0.5,
        }
    )  # fmt: skip


def test_a_fitted_model_is_read_back_as_it_was_written(tmp_path: Path, refused: Refused) -> None:
    logistic = learned_risk.Logistic((1, 2, 3), (1, 1, 2), (0.1, 0.2, 0.3), -1)
    model = learned_risk.RiskModel("question", learned_risk.GROUPS["question"], logistic, (0.4,), "0.3/0.7")
    path = tmp_path / "policy.json"
    path.write_text(json.dumps({"policy": "learned_risk", **learned_risk.LearnedRisk.made_of(model).contents()}))
    assert learned_risk.LearnedRisk(str(path)).model == model
    reason = "fitted for the levels 0.3/0.7, not for 0.3/0.5"
    refused(reason, parse_arm, f"policy:learned_risk:target:0.3/0.5:file={path}")
    refused("was made for learned_risk", parse_arm, f"policy:conformal:target:0.3/0.7:file={path}")


HUGE = {"means": [10**400], "scales": [1], "weights": [1], "bias": 0}
FITTED = {"group": "question", "features": ["question_words"], "thresholds": [0.4], "logistic": HUGE}


@pytest.mark.parametrize("policy", ["learned_risk", "conformal"])
def test_a_file_that_holds_no_model_is_refused_in_one_line(tmp_path: Path, policy: str) -> None:
    huge = {"policy": policy, "levels": "0.3/0.7", "confidences": [10**400], "bounds": [1], **FITTED}
    half = [{"policy": policy}, {"policy": policy, "group": 3}]
    path = tmp_path / "policy.json"
    for content in ("[1]", "{", *map(json.dumps, half), json.dumps(huge)):
        path.write_text(content)
        with pytest.raises(SightlineError) as refused:
            parse_arm(f"policy:{policy}:target:0.3/0.7:file={path}")
        assert "\n" not in str(refused.value)
    assert re.search(rf"{policy}: .*policy\.json holds no (fitted model|bounds) \(int too large", str(refused.value))


class Refusing(dict[str, Any]):
    """Columns of a row of which only what the model said may be read."""

    def get(self, key: str, default: Any = None) -> Any:
        assert key in ("predicted", "margin", "answer_loss"), f"a policy must not know {key}"
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.get(key)
        return super().__getitem__(key)


def test_what_a_policy_sees_has_no_room_for_the_right_answer() -> None:
    row = Refusing(predicted="yes", margin=-1.5, correct=True, label="no", score=1.0, accepted="blue")
    assert LevelAnswer.of(LOW, row) == LevelAnswer(LOW, "yes", 1.5)
    assert {field.name for field in fields(LevelAnswer)} == {"budget", "answer", "confidence"}
    assert {field.name for field in fields(Sight)} == {"probe_id", "question", "cells", "masks", "scores"}
    assert LevelAnswer.of(LOW, {"predicted": "blue", "answer_loss": math.log(4)}).confidence == pytest.approx(0.25)
    assert LevelAnswer.of(LOW, {"predicted": "blue"}).confidence is None


@pytest.mark.parametrize("name", POLICIES.names())
def test_every_policy_says_what_it_does_in_one_line_and_has_its_name(name: str) -> None:
    kind = POLICIES.get(name)
    assert kind.name == name
    assert (kind.__doc__ or "").partition("\n")[0].endswith((".", "?"))
    assert set(kind.tuned) <= {field.name for field in fields(kind)}
