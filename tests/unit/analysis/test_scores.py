"""Scores of answers in words: arms against Full and each other, by slices of questions, and beside coverage."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from sightline.analysis.comparison import ALL_TASKS, ArmPair, Unit, full_arm, rows_in_words, score_changes
from sightline.analysis.regions import STRESS_TAGS, UNTAGGED, stress_slices, stress_tags
from sightline.report.sections.region_coverage import coverage_and_score_frame
from sightline.statistics.bootstrap import SEED, count_blocks
from sightline.statistics.paired import sign_flip_p
from tests.refusals import Refused

DRAWS = 300
ARMS: dict[str, tuple[str, str, str, dict[str, Any]]] = {
    "full": ("full", "reference", "1.0", {}),
    "target:0.3": ("target", "method", "0.3", {"score": "target", "top": 2}),
    "target:0.7": ("target", "method", "0.7", {"score": "target", "top": 2}),
    "target:0.3:score=focus": ("target", "method", "0.3", {"score": "focus", "top": 2}),
    "target:0.3:score=question": ("target", "method", "0.3", {"score": "question", "top": 2}),
    "random:0.3": ("random", "control", "0.3", {"seed": 17}),
    "grid:0.3": ("grid", "control", "0.3", {}),
    "grid:0.7": ("grid", "control", "0.7", {}),
    "evidence_only:0.3": ("evidence_only", "oracle", "0.3", {}),
}
"""arm -> selector, role, budget, arguments."""
TASKS = {"textvqa": 30, "docvqa": 12}
"""How many questions each has; two to an image."""


def open_frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    parts = []
    for arm, (selector, role, budget, arguments) in ARMS.items():
        for task, n in TASKS.items():
            worst = np.ones(n) if arm == "full" else rng.random(n)
            score = np.clip(np.round(0.2 + 0.8 * worst + rng.normal(0.0, 0.2, n), 1), 0.0, 1.0)
            parts.append(
                pd.DataFrame(
                    {
                        "model": "m", "arm": arm, "plain_arm": arm, "selector": selector, "role": role,
                        "arguments": json.dumps(arguments), "budget": budget, "keep": float(budget),
                        "keep_requested": float(budget), "intervention": "none", "view": "orig", "task": task,
                        "probe_id": [f"{task}:{i}" for i in range(n)],
                        "image_id": [f"{task}-{i // 2}" for i in range(n)],
                        "label": "no", "predicted": "no", "correct": score >= 0.5, "score": score,
                        "worst_region": worst, "ecr": np.sqrt(worst), "n_regions": 2,
                    }
                )
            )  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def probes() -> list[dict[str, Any]]:
    """Questions as ``run.probes`` has them: every third long, every fourth with a number for an answer."""
    found = []
    for task, n in TASKS.items():
        for i in range(n):
            question = "What stands on the sign?" if i % 3 else "Which of all the many words stands on the blue sign?"
            found.append({"id": f"{task}:{i}", "question": question, "answers": ["exit" if i % 4 else "14.50"]})
    return found


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
def test_arms_change_against_full_in_each_benchmark_and_over_all_each_weighs_the_same(frame: pd.DataFrame) -> None:
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
    pooled = only(table, arm="target:0.3", task=ALL_TASKS)
    each = [only(table, arm="target:0.3", task=task) for task in TASKS]
    for column in ("score", "reference_score", "change"):
        assert pooled[column] == pytest.approx(np.mean([line[column] for line in each]))
    assert pooled["n"] == sum(TASKS.values())
    assert pooled["win"] == sum(line["win"] for line in each)
    assert pooled["change_low"] < pooled["change"] < pooled["change_high"]
    alone = against_full(frame[frame["task"] == "docvqa"], draws=DRAWS)
    assert set(alone["task"]) == {"docvqa"}


def test_neither_interventions_nor_unanswered_questions_count(frame: pd.DataFrame, refused: Refused) -> None:
    other = frame[frame["arm"] == "target:0.3"].assign(arm="target:0.3+remove_evidence", intervention="remove_evidence")
    both = pd.concat([frame, other.assign(score=0.0)], ignore_index=True)
    pd.testing.assert_frame_equal(against_full(both, draws=50), against_full(frame, draws=50))
    missing = frame[~((frame["arm"] == "grid:0.7") & (frame["probe_id"] == "textvqa:3"))]
    table = against_full(missing, draws=50)
    assert set(table.loc[table["task"] == "textvqa", "n"]) == {TASKS["textvqa"] - 1}
    refused("no row has an answer in words", against_full, frame.drop(columns="score"))
    refused("amend the run with --arm full", against_full, frame[frame["arm"] != "full"])
    refused("Full is the only arm", stress_slices, frame[frame["arm"] == "full"], probes())
    refused("more than one answer", against_full, pd.concat([frame, frame]))


@pytest.mark.usefixtures("plain_percentiles")
def test_two_arms_are_compared_with_a_sign_flip_test(frame: pd.DataFrame) -> None:
    pair = ArmPair("target:0.3:score=focus", "target:0.3:score=question")
    table = pd.DataFrame(score_changes(rows_in_words(frame), [pair], draws=DRAWS, flips=True))
    line = only(table, task="docvqa")
    change = scores(frame, pair.arm, "docvqa") - scores(frame, pair.reference, "docvqa")
    assert line["change"] == pytest.approx(change.mean())
    assert line["reference_score"] == pytest.approx(scores(frame, pair.reference, "docvqa").mean())
    assert line["p"] == sign_flip_p(change, draws=DRAWS)
    assert np.isnan(only(table, task=ALL_TASKS)["p"]), "benchmarks are weighed, not pooled: no test over all"


@pytest.mark.usefixtures("plain_percentiles")
def test_images_can_be_what_is_drawn(frame: pd.DataFrame) -> None:
    own = frame[frame["task"] == "textvqa"]
    line = only(against_full(own, unit="image", draws=DRAWS), arm="grid:0.3")
    change = scores(frame, "grid:0.3", "textvqa") - scores(frame, "full", "textvqa")
    images = own[own["arm"] == "full"].set_index("probe_id")["image_id"].sort_index()
    of_image = np.unique(images, return_inverse=True)[1]
    drawn = []
    for counts in np.concatenate(list(count_blocks(15, DRAWS, SEED, "images of textvqa"))):
        weights = counts[of_image]
        drawn.append(float((weights * change).sum() / weights.sum()))
    assert (line["change_low"], line["change_high"]) == pytest.approx(tuple(np.quantile(drawn, [0.025, 0.975])))


def test_questions_have_the_protocols_tags() -> None:
    for question, answer, *tags in (
        ("What is this?", "exit"),
        ("What is this?", "to the exit", "multi-token answer"),
        ("What is the word that stands on this large sign?", "exit", "long question"),
        ("Which word is between the lines?", "exit", "several constraints"),
        ("Sand or candy?", "exit"),
        ("What is this?", "4 you", "numeric answer"),
        ("What is the TOTAL?", "x", "field word"),
        ("Totals?", "x"),
        ("From date?", "12/15/88", "multi-token answer", "several constraints", "numeric answer", "field word"),
    ):
        assert list(stress_tags(question, [answer, answer.removeprefix("to the ")])) == tags, question


def test_a_slice_is_the_table_of_its_questions(frame: pd.DataFrame) -> None:
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


FEWER = 200


@pytest.mark.usefixtures("plain_percentiles")
def test_correlations_are_over_all_budgets_of_a_selector_and_draws_rank_its_questions_anew(refused: Refused) -> None:
    covered = open_frame()
    rng = np.random.default_rng(4)
    covered = covered.assign(ecr=np.clip(covered["worst_region"] + rng.normal(0.0, 0.5, len(covered)), 0.0, 1.0))
    table = coverage_and_score_frame(covered, draws=FEWER)
    own = table[table["arms"] == "target:0.3, target:0.7"].set_index("coverage")
    worst, union = (own["rho"].astype(float)[name] for name in ("worst region", "union"))
    full = covered[covered["arm"] == "full"].set_index("probe_id")["score"]
    seen = covered[covered["arm"].isin(["target:0.3", "target:0.7"])]
    seen = seen.assign(change=seen["score"] - seen["probe_id"].map(full))
    assert set(own.index) == {"worst region", "union"}
    assert set(own["n"]) == {2 * sum(TASKS.values())}
    assert set(own["samples"]) == {sum(TASKS.values())}
    assert worst == pytest.approx(spearmanr(seen["worst_region"], seen["change"]).statistic)
    assert union == pytest.approx(spearmanr(seen["ecr"], seen["change"]).statistic)
    assert worst > union
    assert own["advantage"].tolist() == pytest.approx([worst - union] * 2)
    line = own.loc["worst region"]
    sample = np.unique(seen["probe_id"], return_inverse=True)[1]
    rhos, advantages = [], []
    for counts in np.concatenate(list(count_blocks(int(sample.max()) + 1, FEWER, SEED, "samples"))).astype(int):
        drawn = seen.iloc[np.repeat(np.arange(len(seen)), counts[sample])]
        rho, other = (spearmanr(drawn[name], drawn["change"]).statistic for name in ("worst_region", "ecr"))
        rhos.append(rho)
        advantages.append(rho - other)
    assert (line["rho_low"], line["rho_high"]) == pytest.approx(tuple(np.quantile(rhos, [0.025, 0.975])))
    bounds = tuple(np.quantile(advantages, [0.025, 0.975]))
    assert (line["advantage_low"], line["advantage_high"]) == pytest.approx(bounds)
    bare = covered.assign(worst_region=covered["worst_region"].where(covered["task"] == "textvqa"))
    assert set(coverage_and_score_frame(bare, draws=20)["samples"]) == {TASKS["textvqa"]}
    refused("questions with regions", coverage_and_score_frame, covered.assign(worst_region=np.nan), draws=20)
