"""What becomes of a sentence of the paper: held, refuted or open, at a margin where it says "as well"."""

import math
import re
from pathlib import Path
from typing import Any

import pytest

from sightline_paper import PAPER_TABLES, Claim, Need, Study, StudyOptions, cost_cards
from sightline_paper.claims import Judgement, corrected, judgement
from sightline_paper.lines import Measured
from sightline_paper.models import demo_models
from sightline_paper.printed import measured, notes_below, run_table
from tests.unit.paper.conftest import Pilot

SILENT = ("2", "S2", "S6", "S7", "S9", "S10", "S11", "S15", "S18")


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (Measured(0.0, -0.10, 0.10), "open"),  # few images: nothing is known
        (Measured(-0.042, -0.125, 0.0), "open"),
        (Measured(0.003, -0.014, 0.020), "holds"),  # the paper's own interval of Target - Full
        (Measured(0.08, 0.05, 0.11), "fails"),
        (Measured(0.012, 0.006, 0.018), "holds"),  # told apart from zero, and equal within the margin
        (Measured(0.0, 0.0, 0.0), "open"),  # an interval that could not vary
        (Measured(0.0, math.nan, math.nan), "open"),
    ],
)
def test_equal_holds_only_inside_a_margin(found: Measured, outcome: str) -> None:
    assert judgement(found, "", "equal", 0.02).outcome == outcome


def test_an_equality_of_more_images_never_holds_less() -> None:
    """The 95% interval shrinks with the root of the number of images around the same difference."""
    halves = [0.2 / math.sqrt(n) for n in (4, 16, 64, 256, 1024, 4096)]
    outcomes = [judgement(Measured(0.004, 0.004 - h, 0.004 + h), "", "equal", 0.02).outcome for h in halves]
    assert outcomes == ["open"] * outcomes.count("open") + ["holds"] * outcomes.count("holds")
    assert {"open", "holds"} == set(outcomes)


def test_a_side_is_decided_as_its_interval_says() -> None:
    assert judgement(Measured(0.05, 0.01, 0.09), "").outcome == "holds"
    assert judgement(Measured(0.05, 0.01, 0.09), "", "below").outcome == "fails"
    assert judgement(Measured(0.05, -0.01, 0.11), "").outcome == "open"
    assert judgement(Measured(0.05, 0.0001, 0.0999), "").p == pytest.approx(0.05, abs=0.001)


def test_of_a_family_of_claims_holm_leaves_those_that_survive_all_its_tests() -> None:
    """Of 0.001, 0.02, 0.04 and two open ones only the first survives five tests."""
    ps = (0.001, 0.02, 0.04, 0.3, 0.9)
    found = corrected([Judgement("holds" if p < 0.05 else "open", "", p) for p in ps] + [Judgement("holds", "counted")])
    assert [each.outcome for each in found] == ["holds", "open", "open", "open", "open", "holds"]
    assert "Holm" in found[1].words
    assert found[-1].words == "counted", "what needs no test is in no family"


def test_every_table_that_a_sentence_rests_on_has_its_claims_and_no_equality_lacks_its_margin() -> None:
    assert all(PAPER_TABLES.get(number).claims for number in SILENT)
    sentences = [claim.sentence for number in PAPER_TABLES for claim in PAPER_TABLES.get(number).claims]
    assert not [each for each in sentences if "about as" in each or "not told apart" in each]
    assert sum("within" in each for each in sentences) >= 12
    first, time = PAPER_TABLES.get("1").claims[0].sentence, PAPER_TABLES.get("S17").claims[0].sentence
    assert ("within 0.02" in first, "no margin" in first) == (True, True), "the paper claims no noninferiority"
    assert "AnchorPrune" in time


def test_a_stand_in_is_called_one_in_its_row_and_no_claim_is_judged_on_it(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    study = Study(tmp_path, {}, options=StudyOptions(demo=True, limit=4, draws=100))
    study.models.update(demo_models(tmp_path / "models"))
    assert "Writing" not in "".join(capfd.readouterr()), "checkpoints are written in silence"
    del study.models["internvl"]
    printed = run_table(study, PAPER_TABLES.get("S5"))
    rows = [line.words[0] for line in printed.blocks[0].lines]
    assert rows[0] == "reader for Qwen Target (30%)"
    assert rows[3] == "random weights for LLaVA Protected (40%)"
    assert {outcome for outcome, _, _ in printed.claims} == {"not judged"}
    texts = (printed.csv(), printed.markdown(), printed.latex(), "\n".join(printed.plain_lines()))
    assert all("random weights for LLaVA" in text for text in texts)


def test_nothing_is_judged_on_a_checkpoint_of_another_size_and_no_claim_about_answers_at_chance(
    pilot: Pilot, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, needs = Judgement("holds", "0.5", 0.001), (Need("qwen", "confirmation", ("full",)),)
    answers, masks = (Claim("A sentence.", lambda study: held, needs, about) for about in (True, False))
    study = pilot(limit=12)
    assert study.stand_in("qwen") == "qwen3vl"
    printed = measured(study, PAPER_TABLES.get("S14"))
    assert printed.blocks[0].lines[1].words == ("Target (30%) (qwen3vl for Qwen)",)
    assert answers.judge(study).outcome == "not judged"
    monkeypatch.setattr(Study, "stand_in", lambda self, model: "")
    study.compute(needs)
    found = answers.judge(study)
    assert found.outcome == "open"
    assert "chance" in found.words
    assert masks.judge(study) == held, "masks can be judged"


@pytest.mark.parametrize(("model", "dtype", "options"), [
    ("qwen", "bfloat16", {"min_pixels": 802_816, "max_pixels": 802_816}),
    ("llava", "float16", {}),
    ("internvl", "bfloat16", {"min_tiles": 1, "max_tiles": 12}),
])  # fmt: skip
def test_cost_is_measured_at_the_papers_image_options_and_precision(
    pilot: Pilot, data: Path, monkeypatch: pytest.MonkeyPatch, model: str, dtype: str, options: dict[str, Any]
) -> None:
    asked = []
    monkeypatch.setattr(cost_cards, "_measure", lambda study, name, requests: asked.extend(requests))
    study = pilot(run={"device": "cpu"})
    study.models["internvl"] = str(data / "tiny/internvl")
    study.record()
    cost_cards.batch_prefill(study, "prefill", model, ("full", "target:0.3"))
    cost_cards.repeated_timing(study, "single", model, ("full", "target:0.3"))
    assert len(asked) == 1 + cost_cards.PROCESSES
    assert {request.dtype for request in asked} == {dtype}
    assert all(request.image_options == options for request in asked)


def test_published_intervals_and_figures_stand_beside_measured_ones_and_what_was_not_given_is_named(
    tmp_path: Path,
) -> None:
    study = Study(tmp_path, {"llava": "nowhere", "internvl": "nowhere"})
    shown = {number: measured(study, PAPER_TABLES.get(number)) for number in ("S5", "S9", "S13", "S18", "GSR")}
    for number, count in (("S5", 22), ("S9", 10), ("S13", 2)):
        lines = PAPER_TABLES.get(number).blocks[0].lines
        cells = [cell for line in lines for cell in line.published if isinstance(cell, Measured)]
        assert len(cells) == count
        assert all(isinstance(cell.value, float) and cell.low <= cell.value <= cell.high for cell in cells)
        assert f"{cells[0].low!r},{cells[0].high!r}" in shown[number].csv()
        assert notes_below(shown[number])
    assert re.search(r"2\.38?4?e-07", shown["S13"].markdown())
    assert all(figure in shown["S18"].markdown() for figure in ("254.4", "56.4%", "0.155"))
    assert shown["GSR"].missing == ["10 lines not measured: GSR-Bench was not given: name its folder with --gsr"]


@pytest.fixture(scope="module")
def demonstration(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Study:
    tiny = {"qwen": "qwen3vl", "llava": "llava", "internvl": "internvl"}
    models = {name: str(data / "tiny" / folder) for name, folder in tiny.items()}
    options = StudyOptions(demo=True, limit=12, draws=100, run={"device": "cpu"})
    return Study(tmp_path_factory.mktemp("demo") / "study", models, options=options)


@pytest.mark.parametrize("number", ["CALIBRATION", "PLAUSIBLE", "POSITIONS", "QC", "STRATA"])
def test_results_of_the_text_are_measured_in_a_demonstration(number: str, demonstration: Study) -> None:
    printed = run_table(demonstration, PAPER_TABLES.get(number))
    same = ["1 line not measured: all cells are of one size here"]
    assert printed.missing == (same if number == "STRATA" else []), "drawn pages have one size"
