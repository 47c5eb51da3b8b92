"""Answers in words: against Full, between budgets, against controls, Focus against the question, by slices."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sightline.analysis.comparison import ALL_TASKS
from sightline.analysis.matched_answer_table import focus_table, matched_answer_table
from sightline.analysis.open_answer_table import open_answer_table, recovery_table
from sightline.analysis.regions import STRESS_TAGS, UNTAGGED, stress_slices, stress_tags
from sightline.errors import SightlineError
from sightline.statistics.bootstrap import SEED, count_blocks
from sightline.statistics.paired_scores import sign_flip_p
from tests.unit.analysis.open_frame import ARMS, TASKS, open_frame, probes

DRAWS = 300


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    return open_frame()


def scores(frame: pd.DataFrame, arm: str, task: str) -> np.ndarray:
    """(n,) by sorted question."""
    own = frame[(frame["arm"] == arm) & (frame["task"] == task)].set_index("probe_id")["score"].sort_index()
    return own.to_numpy()


def only(table: pd.DataFrame, **wanted: str) -> pd.Series:
    (line,) = table[np.logical_and.reduce([table[key] == value for key, value in wanted.items()])].to_dict("records")
    return pd.Series(line)


@pytest.mark.usefixtures("plain_percentiles")
def test_every_arm_has_its_change_against_full_in_each_benchmark(frame: pd.DataFrame) -> None:
    table = open_answer_table(frame, draws=DRAWS)
    assert len(table) == (len(ARMS) - 1) * (len(TASKS) + 1)
    for task, n in TASKS.items():
        line = only(table, arm="target:0.3", task=task)
        change = scores(frame, "target:0.3", task) - scores(frame, "full", task)
        assert (line["n"], line["keep"], line["budget"]) == (n, 0.3, "0.3")
        assert line["score"] - line["full_score"] == pytest.approx(line["change"])
        assert line["change"] == pytest.approx(change.mean())
        assert (line["win"], line["loss"]) == ((change > 0).sum(), (change < 0).sum())
        assert line["win"] + line["loss"] + line["tie"] == n
        drawn = [
            change[np.repeat(np.arange(n), counts.astype(int))].mean()
            for counts in np.concatenate(list(count_blocks(n, DRAWS, SEED, f"examples of {task}")))
        ]
        assert (line["change_low"], line["change_high"]) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))
        assert line["words"].startswith("lower than Full by")


def test_over_all_benchmarks_each_weighs_the_same(frame: pd.DataFrame) -> None:
    table = open_answer_table(frame, draws=DRAWS)
    pooled = only(table, arm="target:0.3", task=ALL_TASKS)
    each = [only(table, arm="target:0.3", task=task) for task in TASKS]
    for column in ("score", "full_score", "change", "keep"):
        assert pooled[column] == pytest.approx(np.mean([line[column] for line in each]))
    assert pooled["n"] == sum(TASKS.values())
    assert pooled["win"] == sum(line["win"] for line in each)
    assert pooled["change_low"] < pooled["change"] < pooled["change_high"]
    alone = open_answer_table(frame[frame["task"] == "docvqa"], draws=DRAWS)
    assert set(alone["task"]) == {"docvqa"}


@pytest.mark.usefixtures("plain_percentiles")
def test_images_can_be_the_units_that_are_drawn(frame: pd.DataFrame) -> None:
    own = frame[frame["task"] == "textvqa"]
    line = only(open_answer_table(own, unit="image", draws=DRAWS), arm="grid:0.3")
    change = scores(frame, "grid:0.3", "textvqa") - scores(frame, "full", "textvqa")
    images = (
        frame[(frame["arm"] == "full") & (frame["task"] == "textvqa")].set_index("probe_id")["image_id"].sort_index()
    )
    of_image = np.unique(images, return_inverse=True)[1]
    drawn = []
    for counts in np.concatenate(list(count_blocks(15, DRAWS, SEED, "images of textvqa"))):
        weights = counts[of_image]
        drawn.append(float((weights * change).sum() / weights.sum()))
    assert (line["change_low"], line["change_high"]) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))


def test_interventions_and_other_views_are_no_results_of_an_arm(frame: pd.DataFrame) -> None:
    other = frame[frame["arm"] == "target:0.3"].assign(arm="target:0.3+remove_evidence", intervention="remove_evidence")
    both = pd.concat([frame, other.assign(score=0.0)], ignore_index=True)
    pd.testing.assert_frame_equal(open_answer_table(both, draws=50), open_answer_table(frame, draws=50))


def test_questions_that_some_arm_did_not_answer_are_left_out(frame: pd.DataFrame) -> None:
    missing = frame[~((frame["arm"] == "grid:0.7") & (frame["probe_id"] == "textvqa:3"))]
    table = open_answer_table(missing, draws=50)
    assert set(table.loc[table["task"] == "textvqa", "n"]) == {TASKS["textvqa"] - 1}


def test_a_larger_budget_brings_back_what_it_scores_more(frame: pd.DataFrame) -> None:
    table = recovery_table(frame, draws=DRAWS)
    assert set(zip(table["arm"], table["reference"], strict=True)) == {
        ("target:0.7", "target:0.3"),
        ("grid:0.7", "grid:0.3"),
    }
    line = only(table, arm="target:0.7", task="docvqa")
    change = scores(frame, "target:0.7", "docvqa") - scores(frame, "target:0.3", "docvqa")
    assert line["change"] == pytest.approx(change.mean())


def test_methods_stand_beside_controls_of_their_budget_alone(frame: pd.DataFrame) -> None:
    table = matched_answer_table(frame, draws=DRAWS)
    pairs = set(zip(table["arm"], table["reference"], strict=True))
    methods = ("target:0.3", "target:0.3:score=focus", "target:0.3:score=question")
    assert pairs == {(arm, control) for arm in methods for control in ("random:0.3", "grid:0.3")} | {
        ("target:0.7", "grid:0.7")
    }
    line = only(table, arm="target:0.3", reference="random:0.3", task="textvqa")
    change = scores(frame, "target:0.3", "textvqa") - scores(frame, "random:0.3", "textvqa")
    assert line["change"] == pytest.approx(change.mean())
    assert line["reference_score"] == pytest.approx(scores(frame, "random:0.3", "textvqa").mean())
    assert line["keep"] == line["reference_keep"] == 0.3


def test_focus_is_compared_with_arms_that_differ_in_their_span_alone(frame: pd.DataFrame) -> None:
    table = focus_table(frame, draws=DRAWS)
    assert set(table["arm"]) == {"target:0.3:score=focus"}
    assert set(table["reference"]) == {"target:0.3", "target:0.3:score=question"}
    line = only(table, reference="target:0.3:score=question", task="docvqa")
    change = scores(frame, "target:0.3:score=focus", "docvqa") - scores(frame, "target:0.3:score=question", "docvqa")
    assert line["change"] == pytest.approx(change.mean())
    assert line["p"] == sign_flip_p(change, draws=DRAWS)


@pytest.mark.parametrize(
    ("question", "answers", "tags"),
    [
        ("What is this?", ["exit"], ()),
        ("What is this?", ["to the exit", "exit"], ("multi-token answer",)),
        ("What is the word that stands on this large sign?", ["exit"], ("long question",)),
        ("Which word is between the lines?", ["exit"], ("several constraints",)),
        ("Sand or candy?", ["exit"], ()),
        ("What is this?", ["4 you"], ("numeric answer",)),
        ("What is the TOTAL?", ["x"], ("field word",)),
        ("Totals?", ["x"], ()),
        ("From date?", ["12/15/88"], ("multi-token answer", "several constraints", "numeric answer", "field word")),
    ],
)
def test_a_question_has_the_tags_of_the_protocol(question: str, answers: list[str], tags: tuple[str, ...]) -> None:
    assert stress_tags(question, answers) == tags


def test_every_slice_is_the_table_of_its_questions(frame: pd.DataFrame) -> None:
    table = stress_slices(frame, probes(), draws=DRAWS)
    assert set(table["slice"]) == {"long question", "numeric answer", UNTAGGED} < {*STRESS_TAGS, UNTAGGED}
    line = only(table, slice="long question", arm="grid:0.3", task="textvqa")
    own = frame[frame["probe_id"].isin([f"textvqa:{i}" for i in range(0, 30, 3)])]
    change = scores(own, "grid:0.3", "textvqa") - scores(own, "full", "textvqa")
    assert line["n"] == 10
    assert line["change"] == pytest.approx(change.mean())
    assert line["full_score"] == pytest.approx(scores(own, "full", "textvqa").mean())
    plain = only(table, slice=UNTAGGED, arm="grid:0.3", task="textvqa")
    assert plain["n"] == sum(i % 3 > 0 and i % 4 > 0 for i in range(30))


def test_what_is_missing_is_said_in_one_line(frame: pd.DataFrame) -> None:
    with pytest.raises(SightlineError, match="no row has an answer in words"):
        open_answer_table(frame.drop(columns="score"))
    with pytest.raises(SightlineError, match="amend the run with --arm full"):
        open_answer_table(frame[frame["arm"] != "full"])
    with pytest.raises(SightlineError, match="Full is the only arm"):
        stress_slices(frame[frame["arm"] == "full"], probes())
    with pytest.raises(SightlineError, match="--matched-controls"):
        matched_answer_table(frame[frame["role"] != "control"])
    with pytest.raises(SightlineError, match="score=focus"):
        focus_table(frame[frame["arm"].isin(["full", "target:0.3"])])
    with pytest.raises(SightlineError, match="two budgets"):
        recovery_table(frame[frame["budget"] == "0.3"])
    with pytest.raises(SightlineError, match="more than one answer"):
        open_answer_table(pd.concat([frame, frame]))


def test_budgets_by_tiles_are_recovered_among_themselves(frame: pd.DataFrame) -> None:
    by_tile = frame[frame["selector"] == "grid"]
    by_tile = by_tile.assign(**{name: by_tile[name] + "/tile" for name in ("arm", "plain_arm", "budget")})
    table = recovery_table(pd.concat([frame, by_tile], ignore_index=True), draws=50)
    pairs = set(zip(table["arm"], table["reference"], strict=True))
    assert {("grid:0.7", "grid:0.3"), ("grid:0.7/tile", "grid:0.3/tile")} <= pairs
    assert ("grid:0.7", "grid:0.3/tile") not in pairs
