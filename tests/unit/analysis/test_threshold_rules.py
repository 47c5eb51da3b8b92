from __future__ import annotations

import numpy as np
import pytest

from sightline.errors import SightlineError
from sightline.statistics.thresholds import Development, Given, WithinRisk, check_models, shown
from sightline.statistics.thresholds import parse_threshold as parse_rule
from sightline.statistics.thresholds import read_thresholds as read_rules
from sightline.statistics.thresholds import threshold_for as rule_of

YES_NO = np.array([True, False, True, False])
SEEN = Development(
    {
        "full": (YES_NO, np.array([3.0, 1.0, 4.0, 0.0])),
        "grid:0.3": (YES_NO, np.array([1.0, -1.0, 2.0, -2.0])),
    },
    "full",
)


@pytest.mark.parametrize(
    ("text", "full", "grid"),
    [("2.043", 2.043, 2.043), ("-1", -1.0, -1.0), ("full-dev", 2.0, 2.0), ("own-dev", 2.0, 0.0), ("hfpr<=1", 2.0, 0.0)],
)
def test_a_rule_names_the_threshold_of_every_arm(text: str, full: float, grid: float) -> None:
    rule = parse_rule(text)
    assert [rule.threshold(arm, SEEN) for arm in SEEN.arms] == [full, grid]


def test_shared_is_the_best_for_all_rows_together() -> None:
    # Seven of eight rows are right at 0.5 (full's negative at 1 says yes) and at 1.5 (grid's positive at 1 says no):
    # the tie goes to the lower hFPR.
    assert {parse_rule("shared").threshold(arm, SEEN) for arm in SEEN.arms} == {1.5}


def test_full_dev_serves_an_arm_that_has_no_development_row_and_own_dev_does_not() -> None:
    assert parse_rule("full-dev").threshold("target:0.5", SEEN) == 2.0
    with pytest.raises(SightlineError, match=r"no development row to choose its threshold on; .* or take full-dev"):
        parse_rule("own-dev").threshold("target:0.5", SEEN)
    with pytest.raises(SightlineError, match="no development row of a full arm"):
        parse_rule("full-dev").threshold("grid:0.3", Development(SEEN.arms, None))


def test_a_rule_is_written_as_it_reads() -> None:
    for text in ("full-dev", "own-dev", "shared", "hfpr<=0.05", "2.043"):
        assert str(parse_rule(text)) == text
    assert parse_rule(" hFPR <= 0.05 ") == WithinRisk(0.05)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("full_dev", "'full_dev' is not a threshold; did you mean 'full-dev'?"),
        ("hfpr<0.05", "'hfpr<0.05' is not a threshold; did you mean 'hfpr<=0.05'?"),
        ("banana", "'banana' is not a threshold; write a number, full-dev, own-dev, shared or hfpr<=0.05"),
        ("nan", "'nan' is not a threshold"),
        ("hfpr<=low", "'low' is not a number; write for example hfpr<=0.05"),
        ("hfpr<=1.5", "a bound on hFPR must lie in [0, 1], got 1.5"),
        ("hfpr<=-0.1", "a bound on hFPR must lie in [0, 1], got -0.1"),
    ],
)
def test_what_is_no_rule_is_refused_in_one_line_that_helps(text: str, line: str) -> None:
    with pytest.raises(SightlineError) as caught:
        parse_rule(text)
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_stands_before_the_equals_sign_and_a_bound_is_not_taken_for_one() -> None:
    rules = read_rules(["hfpr<=0.05", "Org/InternVL=2.043", "Qwen=hfpr<=0.1"])
    assert rules == {None: WithinRisk(0.05), "Org/InternVL": Given(2.043), "Qwen": WithinRisk(0.1)}
    assert rule_of(rules, "Qwen") == WithinRisk(0.1)
    assert rule_of(rules, "LLaVA") == WithinRisk(0.05)
    assert rule_of(read_rules("Qwen=0.5"), "LLaVA") is None


def test_python_takes_a_number_a_rule_or_one_per_model() -> None:
    assert read_rules(2) == read_rules("2") == read_rules(Given(2.0)) == {None: Given(2.0)}
    assert read_rules({"Qwen": 1.5, "LLaVA": "own-dev"}) == read_rules(["Qwen=1.5", "LLaVA=own-dev"])


def test_two_rules_for_one_model_are_refused() -> None:
    with pytest.raises(SightlineError, match="two thresholds for all models"):
        read_rules(["0.5", "full-dev"])
    with pytest.raises(SightlineError, match="two thresholds for model 'Qwen'"):
        read_rules(["Qwen=0.5", "Qwen=full-dev"])


def test_a_model_that_no_run_has_is_answered_with_a_guess() -> None:
    with pytest.raises(SightlineError, match="model 'reader-mimi', which no run has; did you mean 'reader-mini'"):
        check_models(read_rules("reader-mimi=2"), ["reader-mini", "reader-mini"])
    with pytest.raises(SightlineError, match=r"models: a, b$"):
        check_models(read_rules("zebra=2"), ["a", "b"])


def test_thresholds_are_shown_with_three_decimals_at_most() -> None:
    shortened = [shown(value) for value in (2.0425992, 0.0, -0.0001, -1.5, 10.0)]
    assert shortened == ["2.043", "0", "0", "−1.5", "10"]
