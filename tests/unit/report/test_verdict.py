"""What a run comes to per method, the risks of its fields, what was guessed, and where the page says so."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sightline.core.probe import TWIN
from sightline.documents.settings import KINDS as FIELD_KINDS
from sightline.geometry.marks import SWAPPED_FOR
from sightline.report.build import build_report
from sightline.report.case_packing import pack_cases
from sightline.report.sections import Context, Section, make_sections
from sightline.report.summary import summarise
from sightline.report.verdict import AuditVerdict, Plan, audit_verdict, kind_words, plan_of
from sightline.rows.picture import lost_texts
from sightline.rows.source import read_source
from sightline.statistics.legibility_law import LegibilityLaw
from tests.runs.open_questions import make_open_run
from tests.runs.pages import missing
from tests.runs.yes_no import Edit

ARMS = ("full", "target:0.5", "target:0.3", "random:0.5", "anti_evidence:0.5")
DRAWS = 400
BOX = [0.1, 0.2, 0.3, 0.25]
RIGHT = {"correct": True, "score": 1.0, "outcome": "right", "swapped": False, "digit_error": False, "invented": False,
         "silent": False, "confidently_wrong": False, "digits_changed": 0, "digits_lost": 0,
         "digits_added": 0}  # fmt: skip
SWAPPED = RIGHT | {"correct": False, "score": 0.0, "outcome": "swapped", "swapped": True, "swapped_text": "12.00",
                   "swapped_box": BOX, "confidently_wrong": True}  # fmt: skip


def answers(wrong: Callable[[str, str, str], bool]) -> Edit:
    """Every answer right, but swapped where ``wrong`` says so of arm, probe and view."""

    def edit(row: dict[str, Any]) -> None:
        row |= SWAPPED if wrong(row["arm"], row["probe_id"], row["view"]) else RIGHT

    return edit


VALUES_LOST = answers(lambda arm, probe, view: arm == "target:0.3" and probe.endswith("value"))


SOME_LOST_AT_HALF = answers(lambda arm, probe, view: arm == "target:0.5" and probe[-1] == "e" and "1" in probe)
"""The smaller budget, at which nothing is lost, is within the margin by luck alone."""


def verdict_of(path: Path, edit: Edit, *, arms: tuple[str, ...] = ARMS, margin: float = 0.02) -> AuditVerdict:
    return audit_verdict(make_open_run(path, images=40, arms=arms, edit_row=edit), margin=margin, draws=DRAWS)


@pytest.mark.parametrize(
    ("edit", "arms", "margin", "decision", "arm", "words"),
    [
        (VALUES_LOST, ARMS, 0.12, "prune", "target:0.5", "may keep 50% of the visual tokens"),
        (VALUES_LOST, ARMS, 0.02, "more pages", "target:0.5", "more would decide on target:0.5"),
        (VALUES_LOST, ("full", "target:0.3"), 0.02, "no", "target:0.3", "do not prune: even target:0.3"),
        (SOME_LOST_AT_HALF, ARMS, 0.12, "more pages", "target:0.5", "more would decide on target:0.5"),
        (answers(lambda arm, *_: True), ARMS, 0.02, "nothing", "target:0.5", "nothing can be said"),
    ],
)
def test_a_method_is_decided_by_the_bound_of_its_loss(
    tmp_path: Path, edit: Edit, arms: tuple[str, ...], margin: float, decision: str, arm: str, words: str
) -> None:
    found = verdict_of(tmp_path / "run", edit, arms=arms, margin=margin)
    (method,) = found.methods  # neither the control nor the oracle
    assert (method.method, method.decision, method.arm) == ("target", decision, arm)
    assert words in method.says
    assert (method.more_pages > 0) is (decision == "more pages")
    assert bool(method.saves) is (decision == "prune")
    assert found.says_something is (decision in ("prune", "no"))
    assert json.loads(json.dumps(found.as_dict()))["methods"][0]["decision"] == decision


def test_it_says_what_breaks_first_what_is_no_better_and_who_cannot_read(tmp_path: Path) -> None:
    found = verdict_of(tmp_path / "run", VALUES_LOST, margin=0.12)
    broken = found.methods[0].breaks
    assert broken is not None
    told = (broken.arm, broken.outcome, broken.kind, broken.count, broken.of)
    assert told == ("target:0.3", "swapped", "value", 40, 40)
    assert broken.probe.endswith("value")
    assert found.lines[0].startswith("Unpruned, the model answers 80 of 80 questions on 40 pages right")
    assert any("target:0.5 is not shown to be better than random:0.5" in line for line in found.lines)
    assert any(line.startswith("  breaks first: under target:0.3 another text of the page") for line in found.lines)
    blind = verdict_of(tmp_path / "blind", answers(lambda *_: True))
    assert "next to nothing right" in blind.reference[0]
    assert not any("breaks" in line for line in blind.lines)


def sections_of(path: Path) -> dict[str, Section]:
    source = read_source([path])
    return {part.id: part for part in make_sections(Context(source, summarise(source, DRAWS), DRAWS, 17))}


def test_fields_are_counted_by_kind_and_guesses_against_the_twin(tmp_path: Path) -> None:
    def wrong(arm: str, probe: str, view: str) -> bool:
        page = int(probe[4:7])
        on_twin = view == TWIN and arm != "random:0.5" and page % (2 if arm.startswith("target") else 10) == 0
        return on_twin or (arm == "target:0.3" and probe.endswith("value"))

    run = make_open_run(tmp_path / "run", images=40, arms=ARMS, edit_row=answers(wrong), twins=True)
    plain = sections_of(make_open_run(tmp_path / "plain", images=12, arms=ARMS))
    assert not {"field-risk", "read-or-guessed"} & set(plain), "nothing is said of what there is not"
    parts = sections_of(run)
    fields = parts["field-risk"].tables[0]
    lines: Any = fields.frame.set_index(["arm_name", "kind"])
    assert lines.loc[("target:0.3", "value"), "swapped"] == 1.0
    assert lines.loc[("target:0.3", "every kind"), ["swapped", "n_probes"]].tolist() == [0.5, 80]
    assert 0.05 < lines.loc[("full", "value"), "swapped_high"] < 0.15  # none of 40, and still a bound
    assert missing(fields.sentence, "kind value are swapped in 100%", "under target:0.3") == []
    guessed = parts["read-or-guessed"].tables[0]
    every: Any = guessed.frame[guessed.frame["pixels"] == "all"].set_index("arm_name")
    assert every.loc["full", ["page_right", "guessed"]].tolist() == pytest.approx([1.0, 0.1])
    assert every.loc["target:0.5", ["twin_right", "guessed", "beyond"]].tolist() == pytest.approx([0.5, 0.5, 0.4])
    assert every.loc["random:0.5", "guessed"] == 0.0
    assert every.loc["target:0.5", "beyond_low"] > 0.2
    blind = make_open_run(tmp_path / "blind", images=12, arms=ARMS, edit_row=answers(lambda *_: True), twins=True)
    assert sections_of(blind)["read-or-guessed"].sentence == ""
    assert {kind for kind in FIELD_KINDS if kind_words(kind).startswith("questions of kind")} == {"text"}


def test_a_swapped_answer_is_drawn_where_it_stands_and_so_are_texts_that_a_transcription_lacks(tmp_path: Path) -> None:
    run = make_open_run(tmp_path / "run", images=12, arms=ARMS, edit_row=VALUES_LOST)
    source = read_source([run])
    outcome = audit_verdict(source, margin=0.5, draws=DRAWS)
    packed = pack_cases(source, outcome.cases(source))
    (case,) = packed["cases"]
    boxes = {packed["arms"][panel["arm"]]["label"]: panel["swapped_box"] for panel in case["panels"]}
    assert boxes["target:0.3"] == BOX
    assert boxes["full"] is None
    assert packed["swapped"] == SWAPPED_FOR
    probe = {"extra": {"page": [["Total", 0.1, 0.1, 0.2, 0.2], ["12.00 EUR", *BOX]]}}
    for hits, lost in (([1.0, 0.4], [BOX]), ([0.5, 1.0], []), (None, None), ([0.0], None)):
        assert lost_texts(hits, probe) == lost


LAWS = {"resize": LegibilityLaw(0.95, 12.0, 14.0, 0), "target": LegibilityLaw(0.95, 3.0, 5.0, 0)}
SHARES = {"full": 1.0, "target:0.5": 0.5, "target:0.3": 0.3, "target:0.1": 0.1, "resize:0.5": 0.5**0.5,
          "resize:0.3": 0.3**0.5}  # fmt: skip
"""Arm -> what is left of the height of its text."""


def seen_by_height(row: dict[str, Any]) -> None:
    drawn = Random(row["probe_id"])
    height = drawn.uniform(12, 40) * SHARES[row["arm"]]
    law = LAWS.get(row["arm"].partition(":")[0], LAWS["target"])
    right = Random(f"{row['probe_id']} {row['arm']}").random() < float(law.expected(height))
    row |= {**(RIGHT if right else SWAPPED), "legibility": height}


def test_pruning_and_shrinking_have_a_law_each_tried_on_arms_of_their_own_kind(tmp_path: Path) -> None:
    def planned(name: str, *arms: str) -> Plan:
        run = make_open_run(tmp_path / name, images=150, arms=arms, edit_row=seen_by_height)
        return plan_of(read_source([run]).runs[0], 0.02)

    plan = planned("all", *SHARES)
    assert [each.name for each in plan.held] == ["resize:0.5", "resize:0.3", "target:0.5", "target:0.3", "target:0.1"]
    assert max(abs(each.error) for each in plan.held) < 0.08
    assert plan.law.half == pytest.approx(LAWS["resize"].half, rel=0.1)
    assert "law could not be tried" not in plan.words
    estimate = (
        "within the margin: an estimate until that arm is run",
        "more than the margin, which it therefore cannot",
    )
    assert missing(plan.words, *estimate) == []
    assert "more than the margin" not in replace(plan, margin=0.08).words
    assert f"shown {plan.needed / plan.smallest:.1f} times as wide" in plan.words
    alone = planned("one", *(arm for arm in SHARES if arm != "resize:0.3"))
    assert not any(each.name.startswith("resize") for each in alone.held)
    assert "budgets of resize its law could not be tried" in alone.words


def test_the_page_begins_with_the_verdict_and_folds_the_rest(tmp_path: Path) -> None:
    run = make_open_run(tmp_path / "run", images=20, arms=ARMS, edit_row=VALUES_LOST)
    text = build_report([run], tmp_path / "report", margin=0.5, draws=DRAWS).read_text("utf-8")
    folded = ("overview", "field-risk", "answers", "contract")
    places = [text.index(f'<section id="{name}"') for name in ("verdict", *folded)]
    assert places == sorted(places)
    assert missing(text, *(f'<details><summary><h2 id="{name}-title">' for name in folded)) == []
    said = ('<h2 id="verdict-title">', 'data-filter="swapped"', "answered from here", "may be pruned")
    assert missing(text, *said, "Box-free methods and controls") == []
    assert "A. Box-free" not in text
    tells = text.split('<h2 id="field-risk-title">')[1].split("</summary>")[0]
    assert "swapped" in tells, "a closed section says what it comes to"
