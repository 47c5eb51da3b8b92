"""Scores of answers in words: arms against Full and against each other, by benchmark and by slices of questions."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from sightline.analysis.comparison import ALL_TASKS, ArmPair, Unit, full_arm, rows_in_words, score_changes
from sightline.analysis.regions import STRESS_TAGS, UNTAGGED, stress_slices, stress_tags
from sightline.errors import SightlineError
from sightline.statistics.bootstrap import SEED, count_blocks
from sightline.statistics.paired import sign_flip_p
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


def against_full(frame: pd.DataFrame, *, draws: int = DRAWS, unit: Unit = "example") -> pd.DataFrame:
    """Every arm beside Full."""
    rows = rows_in_words(frame)
    full = full_arm(rows)
    pairs = [ArmPair(str(arm), full) for arm in rows["arm"].unique() if arm != full]
    return pd.DataFrame(score_changes(rows, pairs, unit=unit, draws=draws))


@pytest.mark.usefixtures("plain_percentiles")
def test_every_arm_has_its_change_against_full_in_each_benchmark(frame: pd.DataFrame) -> None:
    table = against_full(frame, draws=DRAWS)
    assert len(table) == (len(ARMS) - 1) * (len(TASKS) + 1)
    for task, n in TASKS.items():
        line = only(table, arm="target:0.3", task=task)
        change = scores(frame, "target:0.3", task) - scores(frame, "full", task)
        assert line["n"] == n
        assert line["score"] - line["reference_score"] == pytest.approx(line["change"])
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
    table = against_full(frame, draws=DRAWS)
    pooled = only(table, arm="target:0.3", task=ALL_TASKS)
    each = [only(table, arm="target:0.3", task=task) for task in TASKS]
    for column in ("score", "reference_score", "change"):
        assert pooled[column] == pytest.approx(np.mean([line[column] for line in each]))
    assert pooled["n"] == sum(TASKS.values())
    assert pooled["win"] == sum(line["win"] for line in each)
    assert pooled["change_low"] < pooled["change"] < pooled["change_high"]
    alone = against_full(frame[frame["task"] == "docvqa"], draws=DRAWS)
    assert set(alone["task"]) == {"docvqa"}


@pytest.mark.usefixtures("plain_percentiles")
def test_images_can_be_the_units_that_are_drawn(frame: pd.DataFrame) -> None:
    own = frame[frame["task"] == "textvqa"]
    line = only(against_full(own, unit="image", draws=DRAWS), arm="grid:0.3")
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
    pd.testing.assert_frame_equal(against_full(both, draws=50), against_full(frame, draws=50))


def test_questions_that_some_arm_did_not_answer_are_left_out(frame: pd.DataFrame) -> None:
    missing = frame[~((frame["arm"] == "grid:0.7") & (frame["probe_id"] == "textvqa:3"))]
    table = against_full(missing, draws=50)
    assert set(table.loc[table["task"] == "textvqa", "n"]) == {TASKS["textvqa"] - 1}


def test_any_two_arms_can_be_compared_with_a_sign_flip_test(frame: pd.DataFrame) -> None:
    pair = ArmPair("target:0.3:score=focus", "target:0.3:score=question")
    table = pd.DataFrame(score_changes(rows_in_words(frame), [pair], draws=DRAWS, flips=True))
    line = only(table, task="docvqa")
    change = scores(frame, pair.arm, "docvqa") - scores(frame, pair.reference, "docvqa")
    assert line["change"] == pytest.approx(change.mean())
    assert line["reference_score"] == pytest.approx(scores(frame, pair.reference, "docvqa").mean())
    assert line["p"] == sign_flip_p(change, draws=DRAWS)
    assert np.isnan(only(table, task=ALL_TASKS)["p"]), "benchmarks are weighed, not pooled: no test over all"


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
        against_full(frame.drop(columns="score"))
    with pytest.raises(SightlineError, match="amend the run with --arm full"):
        against_full(frame[frame["arm"] != "full"])
    with pytest.raises(SightlineError, match="Full is the only arm"):
        stress_slices(frame[frame["arm"] == "full"], probes())
    with pytest.raises(SightlineError, match="more than one answer"):
        against_full(pd.concat([frame, frame]))
