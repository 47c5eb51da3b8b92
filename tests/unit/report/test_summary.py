"""The top of the page: the first sentence, one interval for one share, a model that only guesses, arms under panels."""

import re
from pathlib import Path
from typing import Any

import pytest

from sightline.core.selection import NO_BOXES
from sightline.core.table import unlettered
from sightline.gate.decisions import gate_runs, markdown, run_gate
from sightline.report import columns
from sightline.report.sections.provenance import provenance_table
from sightline.report.summary import headlines, main_table, summarise, verdicts
from sightline.rows.source import read_source
from sightline.statistics.bootstrap import SEED
from tests.runs.pages import DRAWS, Page, comparison_of, missing, open_page_of, page_of, report_on
from tests.runs.yes_no import ALL_WRONG, make_run, says_no

ASSISTED, BOX_FREE, ORACLES, UNKNOWN = map(
    unlettered, (columns.ASSISTED, columns.BOX_FREE, columns.ORACLES, columns.UNKNOWN)
)


def test_a_share_has_one_interval_everywhere_its_n_and_a_caption_that_says_what_it_allows_for(run: Path) -> None:
    source = read_source([run])
    summary = summarise(source, DRAWS)
    arms, provenance = (made.set_index("arm") for made in (summary.arms, provenance_table(source, DRAWS, SEED).frame))
    for name in ("weakly_supported", "unsupported"):
        low, high = f"{name}_low", f"{name}_high"
        assert arms[[low, high]].equals(provenance[[low, high]])
        assert (arms[high] > arms[low]).all(), "not even a share of 0 is known exactly"
    assert arms.loc["full", "unsupported"] in (0.0, 1.0)
    assert "Unsupported" in main_table(summary).caption.partition("an image that was not seen: ")[2]
    varied = summary.arms.assign(few_differ="")
    assert "not seen" not in main_table(type(summary)(varied, summary.differences, [])).caption
    right = source.frame[(source.frame["label"] == "yes") & source.frame["correct"]].groupby("arm").size()
    words = {verdict.arm: verdict.words for verdict in verdicts(source, summary)}
    assert f" of {right['grid:0.3']} correct yes answers are unsupported" in words["grid:0.3"]


@pytest.fixture(scope="module")
def guessing(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "guessing"
    return make_run(folder, arms=("full", "target:0.3", "grid:0.3"), edit_row=says_no)


AT_CHANCE = "The model answers at chance: nothing about pruning can be read from its answers; "


def test_of_a_model_at_chance_no_answers_are_compared_which_is_said_once(guessing: Path, run: Path) -> None:
    source = read_source([guessing, run], names=["guessing", "reading"])
    summary = summarise(source, DRAWS)
    assert list(summary.says_nothing) == ["guessing"]
    said = summary.says_nothing["guessing"]
    assert said.startswith(f"guessing: {AT_CHANCE}Balanced accuracy of Full is 0.500 (")
    silent, seeing = list[str](), list[str]()
    for verdict in verdicts(source, summary):
        (silent if verdict.panel.startswith("guessing") else seeing).append(verdict.words)
    assert len(silent) == 3
    for words in silent:
        assert "chance" not in words, "it is said once, at the head"
        assert not any(claim in words for claim in ("Full:", "unsupported", "identical", "than"))
    assert sum("% of the evidence survives" in words for words in silent) == 2, "coverage asks for no answer"
    assert any("not distinguishable from Full" in words for words in seeing)


def test_a_model_at_chance_is_told_at_the_head_of_a_report_and_of_a_comparison(
    guessing: Path, run: Path, tmp_path: Path
) -> None:
    report = report_on(tmp_path / "report", guessing, cases=4).text
    assert report.count("nothing about pruning can be read") == 1
    assert report.index(AT_CHANCE) < report.index('<section id="overview"')
    assert '<p class="headline">' not in report
    assert "<strong>A case.</strong>" in report
    assert "The answer flips" not in report.split("<script")[0]
    text = comparison_of(tmp_path / "comparison", guessing, guessing).text
    assert text.count("nothing about pruning can be read") == 2, "of A and of B"
    assert "changes beyond its interval" not in text
    text = comparison_of(tmp_path / "other", guessing, run).text
    assert f"A: {AT_CHANCE}" in text
    headline = text.partition('<p class="headline">')[2].partition("</p>")[0]
    assert missing(headline, "accuracy of full", "is higher") == []


def test_chance_is_balanced_accuracy_whatever_share_of_labels_is_no(tmp_path: Path) -> None:
    def mostly_negative(row: dict[str, Any]) -> None:
        """80 % right because of 80 % negatives: the answers follow the label's share, not the image."""
        says_no(row)
        if row["image_id"] > "img0007" and row["label"] == "yes":
            row["label"], row["correct"] = "no", True

    run = make_run(tmp_path / "run", arms=("full", "grid:0.3"), edit_row=mostly_negative)
    summary = summarise(read_source([run]), DRAWS)
    assert summary.arms.iloc[0]["accuracy_low"] > 0.5
    assert summary.says_nothing[""].startswith(f"{AT_CHANCE}Balanced accuracy of Full is 0.500 (")


def test_open_questions_of_which_next_to_nothing_is_answered_right_tell_nothing(tmp_path: Path) -> None:
    text = open_page_of(tmp_path / "open", images=20, arms=("full", "target:0.3", "grid:0.3"), edit_row=ALL_WRONG).text
    assert "The model answers next to nothing right: nothing about pruning can be read from its answers; " in text
    assert "Of Full" not in text


def test_labels_other_than_yes_and_no_have_no_chance_of_one_half(tmp_path: Path) -> None:
    def spelled(row: dict[str, Any]) -> None:
        row |= {"margin": None, "loss_no": None, "loss_yes": None, "correct": row["label"] == "yes"}
        row["label"] = row["predicted"] = "14.50"

    run = make_run(tmp_path / "spelled", arms=("full", "grid:0.3"), edit_row=spelled)
    summary = summarise(read_source([run]), DRAWS)
    assert summary.arms["accuracy"].iloc[0] == 0.5
    assert summary.says_nothing == {}


def covered(share: float, selector: str = "random") -> Any:
    """Every answer right; of the selector's positives the first ``share`` lost all evidence, of others none."""

    def edit(row: dict[str, Any]) -> None:
        row |= {"predicted": row["label"], "correct": True, "margin": 1.0 if row["label"] == "yes" else -1.0}
        gone = row["selector"] == selector and int(row["image_id"].removeprefix("img")) < 40 * share
        row["ecr"] = row["anchor_ecr"] = 0.0 if gone else 1.0

    return edit


@pytest.mark.parametrize(
    ("run", "begins", "ends"),
    [
        (
            {"images": 40, "arms": ("full", "target:0.3", "random:0.3", "protected:0.3"), "edit_row": covered(0.5)},
            "Random keeps 30%: 50% of correct yes answers are unsupported, with no evidence left. Accuracy does not "
            "tell: that of Random cannot be told from Full's. Target at the same budget: 0% unsupported.",
            "",
        ),
        (
            {"images": 60, "arms": ("full", "random:0.3", "grid:0.3", "visionzip:0.3")},
            "Random and Grid keep 30%: ",
            "Visionzip at the same budget: 0% unsupported.",
        ),
        (
            {"images": 40, "arms": ("full", "target:0.3", "random:0.3"), "edit_row": covered(0.0)},
            "No box-free arm is shown to answer right without the evidence: ",
            "at most 9% have none left.",
        ),
        (
            {"arms": ("full", "anti_evidence:0.3")},
            "No box-free arm prunes anything here: there is nothing to say about what pruning costs.",
            "",
        ),
        ({"images": 1}, "1 image is fewer than 10: nothing about pruning can be read from its answers.", ""),
        ({"regions": False}, "No correct yes answer has an annotated region", ""),
        ({"edit_row": says_no}, AT_CHANCE, ""),
    ],
)
def test_the_headline_says_what_pruning_costs_and_no_more(
    tmp_path: Path, run: dict[str, Any], begins: str, ends: str
) -> None:
    source = read_source([make_run(tmp_path / "run", **{"arms": ("full", "random:0.3"), **run})])
    (sentence,) = headlines(source, summarise(source, DRAWS))
    assert sentence.startswith(begins)
    assert sentence.endswith(ends)
    if begins.startswith("Random and Grid"):
        assert "are unsupported, with no evidence left. Their accuracy is 0." in sentence


def test_the_headline_stands_before_the_verdicts_and_findings_of_interventions_beside_them(edited: Page) -> None:
    assert edited.text.index('<p class="headline">') < edited.text.index('<ul class="verdicts">')
    overview = edited.text[edited.text.index('<section id="overview"') : edited.text.index('<section id="frontier"')]
    for section, sentence in (
        ("deletion", "target:0.3 loses"),
        ("occlusion", "On positives, graying the evidence lowers the target support of full by"),
        ("image-dependence", "Accuracy of full is"),
    ):
        assert f'<li><b><a href="#{section}">' in overview
        assert sentence in overview


ARMS = ("full", "protected:0.3", "target:0.3", "evidence_only:0.3", "random:0.3")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("mixed") / "run", arms=ARMS)


def test_oracles_stand_apart_in_tables_contract_verdicts_and_frontier(mixed: Path, tmp_path: Path) -> None:
    page = report_on(tmp_path / "out", mixed, cases=2)
    oracles = ["protected:0.3", "evidence_only:0.3"]
    for name in ("main", "paired_differences", "correct_positive_provenance"):
        found = page.html(name)
        shown = (BOX_FREE, ">random:0.3<", ORACLES, *(f">{arm}<" for arm in oracles))
        order = [found.index(text) for text in shown]
        assert order == sorted(order)
        assert ASSISTED not in found, "only panels that occur"
        assert {row["arm"] for row in page.rows(name) if row["regime"] == "oracle"} == set(oracles)
    rows = {row["arm"]: row for row in page.rows("contract")}
    sources = {arm: "annotation" if arm in oracles else NO_BOXES for arm in ARMS}
    assert {arm: row["box_source"] for arm, row in rows.items()} == sources, "none where no box is read"
    assert rows["target:0.3"]["regime"] == "box-free method"
    said = re.findall(r"<li><b>([^<]+)</b> (.*?)</li>", page.text)
    assert [arm for arm, words in said if words.startswith("(oracle: reads the annotated boxes) ")] == oracles
    assert page.text.index(f"<h3>{BOX_FREE}</h3>") < page.text.index(f"<h3>{ORACLES}</h3>")
    legend = (">oracle: reads annotated boxes</text>", "oracles are diagnostics, not a deployable ranking")
    assert missing(page.text, *legend, "protected:0.3 (oracle): Accuracy", "target:0.3: Accuracy") == []
    arms = ("full", "target:0.3", "target:0.5", "protected:0.3", "protected:0.5")
    curves = page_of(tmp_path, images=6, arms=arms, cases=0).text
    assert missing(curves, ">protected (oracle)</text>", ">target</text>") == []


def test_a_gate_on_an_oracle_says_once_that_it_is_a_diagnostic(mixed: Path) -> None:
    rules = ["pos_ecr(protected:0.3) >= 0.1", "accuracy(protected:0.3) - accuracy(full) > -1", "pos_ecr(full) >= 0.9"]
    _, notes = run_gate(mixed, rules, least_n=1, draws=DRAWS)
    about = [note for note in notes if "oracle" in note]
    assert about == [
        "protected:0.3 (oracle: reads the annotated boxes): a diagnostic, not a method that could be deployed"
    ], "once, however many rules name it"
    assert not any("oracle" in note for note in run_gate(mixed, rules[2:], least_n=1, draws=DRAWS)[1])
    assert f"- {about[0]}" in markdown(gate_runs([mixed], rules, least_n=1, draws=DRAWS))


def test_replays_and_methods_that_are_not_installed_have_a_panel_of_their_own(tmp_path: Path) -> None:
    def unknown(row: dict[str, Any]) -> None:
        row["regime"] = {"target": "replay", "grid": None}.get(row["selector"], row["regime"])

    found = page_of(tmp_path / "unknown", images=6, arms=("full", "target:0.3", "grid:0.3"), edit_row=unknown).html(
        "main"
    )
    order = [found.index(text) for text in (BOX_FREE, ">full<", UNKNOWN, ">target:0.3<", ">grid:0.3<")]
    assert order == sorted(order)


def test_every_run_has_panels_of_its_own(mixed: Path, tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", arms=("full", "target:0.3"), shift=0.2, manifest={"model": "a-model"})
    page = report_on(tmp_path / "out", mixed, other)
    assert re.findall(r"<span>(.*?)</span></th>", page.html("main")) == [
        f"reader-mini · {BOX_FREE}",
        f"reader-mini · {ORACLES}",
        f"a-model · {BOX_FREE}",
    ]
    assert "<h1>Visual-token pruning audit of reader-mini, a-model</h1>" in page.text
