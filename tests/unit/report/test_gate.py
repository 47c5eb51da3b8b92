from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from sightline.errors import SightlineError
from sightline.report.gate import Term, find_metric, junit, markdown, parse_rule, run_gate
from tests.unit.report.conftest import DRAWS
from tests.unit.report.fake_run import make_run


def test_rules_are_read() -> None:
    rule = parse_rule(" accuracy(target:0.3) - accuracy(full) >= -0.02 ")
    assert (rule.left, rule.right) == (Term("accuracy", "target:0.3"), Term("accuracy", "full"))
    assert (rule.at_least, rule.strict, rule.bound) == (True, False, -0.02)
    rule = parse_rule("unsupported(scope:0.4:alpha=0,f(x))≤.15")
    assert (rule.left, rule.right, rule.at_least, rule.bound) == (
        Term("unsupported", "scope:0.4:alpha=0,f(x)"),
        None,
        False,
        0.15,
    )
    assert parse_rule("hFPR(a-b:0.3) < 2e-1").strict


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("accuracy(full)", "needs >= or <="),
        ("accuracy >= 0.5", "is not metric"),
        ("accuracy(full >= 0.5", "is not metric"),
        ("acuracy(full) >= 0.5", "did you mean 'accuracy'"),
        ("posecrr(full) >= 0.5", "did you mean 'pos_ecr'"),
        ("accuracy(a) - hfpr(b) >= 0", "needs one metric"),
        ("accuracy(a) - accuracy(a) >= 0", "with itself"),
        ("accuracy(a) + accuracy(b) >= 0", "after the first term"),
        ("accuracy(a) - accuracy(b) - accuracy(c) >= 0", "too much"),
        ("accuracy(a) >= 1.2.3", "is not a number"),
    ],
)
def test_unreadable_rules_say_what_is_wrong(text: str, words: str) -> None:
    with pytest.raises(SightlineError, match=words) as caught:
        parse_rule(text)
    assert "\n" not in str(caught.value)


def test_metric_spellings() -> None:
    assert find_metric("PosECR") == find_metric("pos_ecr") == find_metric("pos-ecr") == "pos_ecr"
    assert find_metric("NegSRC") == "neg_src"
    with pytest.raises(SightlineError, match="known: accuracy"):
        find_metric("zzzzzz")


def test_the_bound_decides_not_the_point(run: Path) -> None:
    (outcome,), notes = run_gate(run, ["accuracy(full) >= 0"], draws=DRAWS)
    assert notes == []
    value, low, high = outcome.value, outcome.low, outcome.high
    assert low < value < high
    rules = [
        f"accuracy(full) >= {low - 0.001}",
        f"accuracy(full) >= {(low + value) / 2}",
        f"accuracy(full) >= {high + 0.001}",
        f"accuracy(full) <= {high + 0.001}",
        f"accuracy(full) <= {(high + value) / 2}",
        f"accuracy(full) <= {low - 0.001}",
    ]
    outcomes, _ = run_gate(run, rules, draws=DRAWS)
    assert [o.verdict for o in outcomes] == ["passed", "undecided", "failed"] * 2


def test_paired_differences_are_narrower_than_the_arms(run: Path) -> None:
    rules = ["accuracy(target:0.5) - accuracy(full) >= -0.5", "accuracy(target:0.5) >= 0", "accuracy(full) >= 0"]
    (difference, arm, full), _ = run_gate(run, rules, draws=2000)
    assert difference.value == pytest.approx(arm.value - full.value)
    assert difference.high - difference.low < (arm.high - arm.low) + (full.high - full.low)
    assert difference.passed


def test_equality_counts_for_or_equal_alone(run: Path) -> None:
    (equal, strict), _ = run_gate(run, ["posecr(full) >= 1", "posecr(full) > 1"], draws=DRAWS)
    assert equal.passed
    assert strict.verdict == "failed"


def test_unknown_arms_are_guessed(run: Path) -> None:
    with pytest.raises(SightlineError, match=r"did you mean 'target:0\.3'"):
        run_gate(run, ["accuracy(target:0.33) >= 0"])
    with pytest.raises(SightlineError, match="arms: full, "):
        run_gate(run, ["accuracy(zzz) >= 0"])
    with pytest.raises(SightlineError, match="has no rule"):
        run_gate(run, [])


def test_what_cannot_be_decided_is_not_passed(tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", images=1)
    (outcome,), notes = run_gate(one, ["accuracy(full) >= 0"], draws=DRAWS)
    assert outcome.verdict == "undecided"
    assert "at least two images" in outcome.words
    assert any("fewer than two images" in note for note in notes)
    bare = make_run(tmp_path / "bare", images=4, regions=False)
    (outcome,), _ = run_gate(bare, ["posecr(full) >= 0"], draws=DRAWS)
    assert outcome.verdict == "undecided"
    assert "there are no positives with regions" in outcome.words


def test_machine_readable_summaries(run: Path) -> None:
    outcomes, _ = run_gate(run, ["accuracy(full) >= 0.1", "accuracy(random:0.3) - accuracy(full) >= 0.5"], draws=DRAWS)
    root = ElementTree.fromstring(junit(outcomes, "run"))
    suite = root.find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == [o.rule.text for o in outcomes]
    failure = cases[1].find("failure")
    assert failure is not None
    assert failure.get("type") == "failed"
    assert cases[0].find("failure") is None
    text = markdown(outcomes, "run")
    assert "1 of 2 rules passed" in text
    assert "| failed | `accuracy(random:0.3) - accuracy(full) >= 0.5` |" in text


@pytest.mark.parametrize("term", ["accuracy(target:0.3)", "accuracy(target:0.3) - accuracy(full)"])
def test_an_undecided_rule_says_how_many_images_would_decide(run: Path, term: str) -> None:
    (known,), _ = run_gate(run, [f"{term} >= -1"], draws=DRAWS)
    bound = known.value - 0.5 * (known.value - known.low)
    (outcome,), _ = run_gate(run, [f"{term} >= {bound:.6f}"], draws=DRAWS)
    assert outcome.verdict == "undecided"
    words = outcome.words.partition("more images would decide, about ")[2]
    needed, _, seen = words.partition(" instead of ")
    assert int(seen) == 20
    assert int(needed) > 2 * int(seen)
