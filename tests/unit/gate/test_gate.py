"""Rules decided on the bounds of intervals."""

import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from sightline.errors import SightlineError
from sightline.gate.decisions import GatedRun, Outcome, gate_runs, junit, markdown, run_gate
from sightline.gate.rules import Term, parse_rule, read_rules
from sightline.rows.run import load_run
from sightline.rows.source import read_source
from sightline.store.folder import RunFolder
from tests.refusals import Refused
from tests.runs.open_questions import make_open_run
from tests.runs.pages import DRAWS, missing
from tests.runs.yes_no import ALL_WRONG, make_run, says_no

FEW = 10
"""A least n that the 20 images of the fixture meet: one positive and one negative each."""
UNREADABLE: dict[str, str] = yaml.safe_load(Path(__file__).with_name("unreadable_rules.yaml").read_text("utf-8"))


def decided(run: Path, *rules: str, **options: Any) -> list[Outcome]:
    return list(run_gate(run, rules, **{"least_n": FEW, "draws": DRAWS, **options})[0])


def needed(outcome: Outcome, images: int) -> int:
    """How many images would decide, as an undecided rule about some says."""
    return int(outcome.words.partition("about ")[2].partition(f" instead of {images}")[0])


def test_rules_are_read_and_unreadable_ones_say_what_is_wrong() -> None:
    rule = parse_rule(" accuracy(target:0.3) - accuracy(full) >= -0.02 ")
    assert (rule.left, rule.right) == (Term("accuracy", "target:0.3"), Term("accuracy", "full"))
    assert (rule.at_least, rule.strict, rule.bound) == (True, False, -0.02)
    rule = parse_rule("unsupported(scope:0.4:alpha=0,f(x))≤.15")
    assert (rule.left, rule.right) == (Term("unsupported", "scope:0.4:alpha=0,f(x)"), None)
    assert (rule.at_least, rule.bound) == (False, 0.15)
    assert parse_rule("hFPR(a-b:0.3) < 2e-1").strict
    rule = parse_rule("equal(accuracy(scope:0.4:alpha=0,beta=f(1, 2)), accuracy(full), 0.02)")
    assert rule.left.arm == "scope:0.4:alpha=0,beta=f(1, 2)"
    assert (rule.right, rule.margin) == (Term("accuracy", "full"), 0.02)
    assert {parse_rule(f"{name}(a) > 0").left.metric for name in ("PosECR", "pos_ecr", "pos-ecr")} == {"pos_ecr"}
    assert parse_rule("NegSRC(a) > 0").left.metric == "neg_src"
    assert parse_rule("swapped(target:0.3, amount) <= 0.01").left == Term("swapped", "target:0.3", "amount")
    for text, words in UNREADABLE.items():
        with pytest.raises(SightlineError) as caught:
            parse_rule(text)
        assert words in str(caught.value), text
        assert "\n" not in str(caught.value)


def test_arms_are_guessed_and_a_rule_about_one_kind_of_question_counts_those_alone(run: Path, refused: Refused) -> None:
    frame = read_source([run]).runs[0].frame
    own = frame[(frame["arm"] == "full") & (frame["kind"] == frame["kind"].iloc[0])]
    (outcome,) = decided(run, f"accuracy(full, {own['kind'].iloc[0]}) > 0")
    assert outcome.n == len(own) < (frame["arm"] == "full").sum()
    assert outcome.value == own["correct"].mean()
    refused("no questions of kind 'amount'", run_gate, run, ["accuracy(full, amount) > 0"])
    refused("did you mean 'target:0.3'", run_gate, run, ["accuracy(target:0.33) > 0"])
    refused("arms: full, ", run_gate, run, ["accuracy(zzz) > 0"])
    refused("gate has no rule", run_gate, run, [])


def test_the_bound_decides_not_the_point_and_paired_differences_are_narrower_than_the_arms(run: Path) -> None:
    (outcome,), notes = run_gate(run, ["accuracy(full) > 0"], least_n=FEW, draws=DRAWS)
    assert notes == []
    value, low, high = outcome.value, outcome.low, outcome.high
    assert low < value < high
    at_least = [f"accuracy(full) >= {bound}" for bound in (low - 0.001, (low + value) / 2, high + 0.001)]
    at_most = [f"accuracy(full) <= {bound}" for bound in (high + 0.001, (high + value) / 2, low - 0.001)]
    outcomes = decided(run, *at_least, *at_most)
    assert [o.verdict for o in outcomes] == ["passed", "undecided", "failed"] * 2
    rules = ("accuracy(target:0.5) - accuracy(full) >= -0.5", "accuracy(target:0.5) > 0", "accuracy(full) > 0")
    difference, arm, full = decided(run, *rules, draws=2000)
    assert difference.value == pytest.approx(arm.value - full.value)
    assert difference.high - difference.low < (arm.high - arm.low) + (full.high - full.low)
    assert difference.passed


def test_what_cannot_be_decided_is_not_passed_unless_it_holds_by_construction(run: Path, tmp_path: Path) -> None:
    one = make_run(tmp_path / "one", images=1)
    (outcome,), notes = run_gate(one, ["accuracy(full) > 0"], least_n=FEW, draws=DRAWS)
    assert outcome.verdict == "undecided"
    assert "at least two images" in outcome.words
    assert any("fewer than two images" in note for note in notes)
    (outcome,) = decided(make_run(tmp_path / "bare", images=4, regions=False), "posecr(full) > 0")
    assert outcome.verdict == "undecided"
    assert "there are no positives with regions" in outcome.words
    coverage, budget, strict = decided(run, "posecr(full) >= 1", "keep(target:0.3) <= 0.31", "posecr(full) > 1")
    assert strict.verdict == "failed", "equality counts for >= alone"
    for outcome in (coverage, budget):
        assert outcome.passed
        assert math.isnan(outcome.low)
        assert "by construction" in outcome.words
    assert "1.000–1.000" not in markdown([GatedRun("run", [coverage, budget])])


def test_machine_readable_summaries(run: Path) -> None:
    outcomes = decided(run, "accuracy(full) >= 0.1", "accuracy(full) - accuracy(random:0.3) >= 0.9")
    (suite,) = ElementTree.fromstring(junit([GatedRun("run", outcomes)])).findall("testsuite")
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    cases = suite.findall("testcase")
    assert [case.get("name") for case in cases] == [o.rule.text for o in outcomes]
    (failure,) = suite.findall("testcase/failure")
    assert failure.get("type") == "failed"
    assert cases[0].find("failure") is None
    value = f"+{outcomes[1].value:.3f}"
    table_row = f"| failed | `accuracy(full) - accuracy(random:0.3) >= 0.9` | 40 | {value} |"
    assert missing(markdown([GatedRun("run", outcomes)]), "1 of 2 rules passed", table_row) == []
    assert all("n = 40: " in str(part.text) for part in (failure, cases[0].find("system-out")) if part is not None)


@pytest.mark.parametrize("term", ["accuracy(target:0.3)", "accuracy(target:0.3) - accuracy(full)"])
def test_an_undecided_rule_says_how_many_images_would_decide(run: Path, term: str) -> None:
    (known,) = decided(run, f"{term} <= 0.9")
    bound = known.value - 0.5 * (known.value - known.low)
    (outcome,) = decided(run, f"{term} >= {bound:.6f}")
    assert outcome.verdict == "undecided"
    assert "more images would decide, about " in outcome.words
    assert needed(outcome, 20) > 2 * 20


def test_a_rule_over_too_few_probes_is_refused_and_n_counts_those_that_the_metric_concerns(run: Path) -> None:
    rules = ["accuracy(full) > 0", "hfpr(full) < 1", "unsupported(full) < 1", "unsupported(grid:0.3) < 1"]
    rules.append("unsupported(grid:0.3) - unsupported(full) < 1")
    everything, negatives, full, grid, difference = decided(run, *rules, least_n=1)
    assert (everything.n, negatives.n) == (40, 20)
    frame = load_run(run).frame()
    right = frame[(frame["label"] == "yes") & frame["correct"]].groupby("arm").size()
    assert (full.n, grid.n) == (right["full"], right["grid:0.3"])
    assert difference.n == min(full.n, grid.n)
    enough, few = decided(run, *rules[:2], least_n=21)
    assert enough.passed
    assert few.verdict == "refused"
    assert "20 probes (negatives), fewer than the least n of 21 (--least-n)" in few.words
    assert decided(run, rules[1], least_n=20)[0].passed
    (outcome,), _ = run_gate(run, rules[:1], draws=DRAWS)
    assert outcome.verdict == "refused", "without being asked, the gate wants 50"


def test_a_rule_must_hold_in_each_run(run: Path, tmp_path: Path) -> None:
    worse = make_run(tmp_path / "worse", shift=-3.0, arms=("full",))
    (known,) = decided(run, "accuracy(full) > 0")
    gated = gate_runs([run, worse], [f"accuracy(full) >= {known.low - 0.01}"], least_n=FEW, draws=DRAWS)
    assert [(one.name, one.passed) for one in gated] == [("run", True), ("worse", False)]
    suites = ElementTree.fromstring(junit(gated)).findall("testsuite")
    assert [suite.get("failures") for suite in suites] == ["0", "1"]
    assert markdown(gated).count("### Sightline gate") == 2
    other = make_run(tmp_path / run.name, arms=("full", "grid:0.3"))
    gated = gate_runs([run, other], ["accuracy(full) > 0"], least_n=1, draws=DRAWS)
    assert [one.name for one in gated] == [str(run), str(other)], "folders of one name are called by their paths"


def test_an_unfinished_run_is_refused_unless_the_rows_so_far_are_asked_for(tmp_path: Path) -> None:
    other = make_run(tmp_path / "run", arms=("full", "grid:0.3"))
    RunFolder(other).rows_file("grid:0.3", 0).unlink()
    for options, verdict in (({}, "refused"), ({"allow_partial": True}, "passed")):
        (outcome,) = decided(other, "accuracy(full) > 0", **options)
        assert outcome.verdict == verdict
        for written in (markdown([GatedRun("run", [outcome])]), junit([GatedRun("run", [outcome])]).decode()):
            assert "the run is not finished: 1 of its shards" in written


def test_files_have_a_rule_a_line(tmp_path: Path, refused: Refused) -> None:
    file = tmp_path / "rules.txt"
    file.write_text(
        "\ufeff# answers\n\naccuracy(full) >= 0.5  # a floor\n  hfpr(masks:0.3:file=a#b) <= 0.1\n", encoding="utf-8"
    )
    assert read_rules(file) == ["accuracy(full) >= 0.5", "hfpr(masks:0.3:file=a#b) <= 0.1"]
    for content, about in ((b"# nothing yet\n", "has no rule"), (b"\xff\xfe", "UTF-8")):
        file.write_bytes(content)
        refused(about, read_rules, file)
    refused("No such file", read_rules, tmp_path / "nowhere")


def test_the_shipped_rules_are_about_every_method_and_say_what_a_run_cannot_decide(run: Path) -> None:
    outcomes, notes = run_gate(run, read_rules(Path("documents")), draws=200)
    arms = {outcome.rule.left.arm for outcome in outcomes}
    assert "target:0.3" in arms
    assert not {arm for arm in arms if arm.startswith(("full", "random", "grid", "protected"))}
    assert {outcome.rule.left.metric for outcome in outcomes} == {"accuracy", "unsupported", "hfpr"}
    left_out = [note for note in notes if note.startswith("left out: ")]
    assert any("swapped({method}) <= 0.01 (the rows have no column 'swapped')" in note for note in left_out)
    assert any("swapped({method}, amount)" in note and "no questions of kind 'amount'" in note for note in left_out)


def test_no_share_of_few_images_is_evidence_and_it_says_how_many_would_decide(run: Path, tmp_path: Path) -> None:
    (outcome,) = decided(run, "unsupported(full) <= 0.1", least_n=1)
    assert (outcome.value, outcome.verdict) == (0.0, "undecided")
    # Of 20 images, n have a right yes answer; so have as many of those needed.
    enough = needed(outcome, 20) * outcome.n / 20
    assert 1 - 0.025 ** (1 / enough) <= 0.1 < 1 - 0.025 ** (1 / (0.9 * enough))
    # Percentiles of 0 of 2 are 0.000 to 0.000; the exact upper bound of it is 0.842.
    two = make_run(tmp_path / "run", images=2, arms=("full", "evidence_only:0.3"))
    (outcome,) = decided(two, "unsupported(full) <= 0.01", least_n=1)
    assert (outcome.value, outcome.low, outcome.verdict) == (0.0, 0.0, "refused")
    assert outcome.high == pytest.approx(1 - 0.025 ** (1 / outcome.n), abs=1e-3)


def test_answers_that_say_nothing_are_refused_and_coverage_is_decided(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", images=60, arms=("full", "target:0.3"), edit_row=says_no)
    answers = ["accuracy(target:0.3) - accuracy(full) >= -0.05", "hfpr(full) <= 0.9", "auroc(full) > 0"]
    *refused, coverage = decided(run, *answers, "posecr(target:0.3) >= 0.1", least_n=1)
    assert [outcome.verdict for outcome in refused] == ["refused"] * 3
    assert refused[0].words.startswith("the model answers at chance: nothing about pruning can be read")
    assert coverage.passed
    (gated,) = gate_runs([run], answers[:1], draws=DRAWS)
    assert not gated.passed
    few = make_run(tmp_path / "few", images=6, arms=("full", "target:0.3"))
    (outcome,) = decided(few, "accuracy(target:0.3) - accuracy(full) > -1")
    assert (outcome.verdict, outcome.words.partition(":")[0]) == ("refused", "6 images are fewer than 10")


def test_open_questions_that_next_to_nothing_answers_right_decide_no_rule(tmp_path: Path) -> None:
    def wrong(row: dict[str, Any]) -> None:
        read = row["kind"] != "value"
        row |= {"score": float(read), "correct": read}

    kinds = [f"score(target:0.3{kind}) - score(full{kind}) >= -0.1" for kind in ("", ", value", ", larger")]
    for edit, images, rules, verdicts in (
        (ALL_WRONG, 30, kinds[:1], ["refused"]),
        (wrong, 60, kinds, ["passed", "refused", "passed"]),
    ):
        run = make_open_run(tmp_path / f"open{images}", images=images, arms=("full", "target:0.3"), edit_row=edit)
        outcomes, _ = run_gate(run, rules, draws=DRAWS)
        assert [outcome.verdict for outcome in outcomes] == verdicts
        said = {outcome.words.partition(":")[0] for outcome in outcomes if outcome.verdict == "refused"}
        assert said == {"the model answers next to nothing right"}


def _alike(row: dict[str, Any]) -> None:
    """Every arm answers everything right, with one margin."""
    row |= {"margin": 1.0 if row["label"] == "yes" else -1.0, "predicted": row["label"], "correct": True}


@pytest.mark.parametrize(("images", "bound", "at_most"), [(25, -0.0001, 0.138), (44, -0.001, 0.081)])
def test_no_discordant_image_does_not_pass_a_bound_that_so_few_images_cannot_give(
    tmp_path: Path, images: int, bound: float, at_most: float
) -> None:
    run = make_run(tmp_path / "run", images=images, arms=("full", "random:0.3"), edit_row=_alike)
    rule = "accuracy(random:0.3) - accuracy(full) >= {}"
    (outcome, wide), _ = run_gate(run, [rule.format(bound), rule.format(-at_most)], draws=DRAWS)
    assert outcome.verdict == "undecided"
    assert -at_most < outcome.low < -0.9 * at_most, "1 - 0.025 ** (1 / images): what may hide behind none of them"
    assert "0.000 to 0.000" not in markdown([GatedRun("run", [outcome])])
    assert 1 - 0.025 ** (1 / needed(outcome, images)) == pytest.approx(-bound, rel=0.02)
    assert wide.passed


def test_margins_that_are_constant_or_separated_do_not_pass_a_rule_on_auroc(tmp_path: Path) -> None:
    def constant(row: dict[str, Any]) -> None:
        row |= {"margin": 1.0, "predicted": "yes", "correct": row["label"] == "yes"}

    run = make_run(tmp_path / "run", images=30, arms=("full",), edit_row=constant)
    (outcome, accuracy), _ = run_gate(run, ["auroc(full) >= 0.5", "accuracy(full) >= 0.5"], draws=DRAWS)
    assert (outcome.verdict, accuracy.verdict) == ("refused", "refused")  # nothing can be read from such answers
    assert outcome.low < 0.4 < 0.6 < outcome.high
    run = make_run(tmp_path / "separated", images=30, arms=("full",), edit_row=_alike)
    (high, low), _ = run_gate(run, ["auroc(full) >= 0.99", "auroc(full) >= 0.75"], draws=DRAWS)
    assert (high.value, high.verdict, low.verdict) == (1.0, "undecided", "passed"), "room for an image that is not"


def test_equal_needs_a_margin_and_two_bounds(tmp_path: Path) -> None:
    def half_wrong(row: dict[str, Any]) -> None:
        _alike(row)
        if row["arm"] == "grid:0.3" and row["label"] == "no":
            row |= {"margin": 1.0, "predicted": "yes", "correct": False}

    run = make_run(tmp_path / "run", images=60, arms=("full", "random:0.3", "grid:0.3"), edit_row=half_wrong)
    rule = "equal(accuracy({}), accuracy(full), {})"
    rules = [rule.format("random:0.3", 0.06), rule.format("random:0.3", 0.02), rule.format("grid:0.3", 0.06)]
    (near, close, far), _ = run_gate(run, rules, draws=DRAWS)
    assert (near.verdict, close.verdict, far.verdict) == ("passed", "undecided", "failed")
    # Two one-sided tests at 5 %: the interval is the 90% one.
    assert near.high == pytest.approx(1 - 0.05 ** (1 / 60), abs=1e-4)
    assert "90% interval" in near.words
    line = "| passed | `equal(accuracy(random:0.3), accuracy(full), 0.06)` | 120 | 0.000 | −0.049 to +0.049 (90%) |"
    assert line in markdown([GatedRun("run", [near, close, far])])
    assert 1 - 0.05 ** (1 / needed(close, 60)) == pytest.approx(0.02, rel=0.02)
    assert missing(junit([GatedRun("run", [far])]).decode(), "failed", "(90%)") == []
