"""What one setting, a limit to some probes, and shuffled scores change."""

import csv
import math
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sightline.report.sections.contract import filter_effects, largest_changes
from sightline.report.sections.differences import one_factor_sweeps, shuffled_frame, sweep_range
from sightline.statistics.bootstrap import SEED, count_blocks
from sightline_paper import PAPER_TABLES
from sightline_paper.models import MODELS
from tests.refusals import Refused

SUMMARY = pd.DataFrame(
    {
        "arm": ["target:0.3:weight=0.5", "target:0.3", "target:0.3:weight=1.0"],
        "accuracy": [0.757, 0.786, 0.788],
        "hfpr": [0.294, 0.246, 0.232],
        "auroc": [0.84, math.nan, 0.85],
        "pn_average": [0.611, 0.564, 0.544],
    }
)


def test_a_range_is_smallest_and_largest_beside_the_frozen_value_and_bad_sweeps_are_named(refused: Refused) -> None:
    settings = {"0.50": "target:0.3:weight=0.5", "0.85": "target:0.3", "1.00": "target:0.3:weight=1.0"}
    found = sweep_range(SUMMARY, settings, frozen="0.85")
    assert (found["settings"], found["n_settings"], found["frozen"]) == ("0.50, 0.85, 1.00", 3, "0.85")
    assert (found["accuracy"], found["accuracy_low"], found["accuracy_high"]) == (0.786, 0.757, 0.788)
    assert (found["hfpr_low"], found["hfpr_high"]) == (0.232, 0.294)
    assert (found["pn_average_low"], found["pn_average_high"]) == (0.544, 0.611)
    assert (found["auroc_low"], found["auroc_high"]) == (0.84, 0.85), "what one arm lacks the others still have"
    found = sweep_range(SUMMARY, SUMMARY["arm"].tolist()[:2])
    assert (found["settings"], found["frozen"]) == ("target:0.3:weight=0.5, target:0.3", "")
    assert (math.isnan(found["accuracy"]), found["accuracy_high"]) == (True, 0.786)
    refused("no arm 'grid:0.3' to sweep over", sweep_range, SUMMARY, ["target:0.3", "grid:0.3"])
    refused("at least one arm", sweep_range, SUMMARY, [])
    refused("frozen setting '2' is not one of 1", sweep_range, SUMMARY, {"1": "target:0.3"}, frozen="2")


def test_arms_are_swept_by_the_one_argument_in_which_they_differ() -> None:
    arms = {
        "target:0.3": '{"weight": 0.85, "top": 2}',
        "target:0.3:weight=1.0": '{"weight": 1.0, "top": 2}',
        "target:0.3:weight=0.5": '{"weight": 0.5, "top": 2}',
        "target:0.3:top=10": '{"weight": 0.85, "top": 10}',
        "target:0.3:weight=0.5,top=10": '{"weight": 0.5, "top": 10}',
        "target:0.5:weight=0.5": '{"weight": 0.5, "top": 2}',
        "random:0.3": '{"seed": 17}',
        "random:0.3:seed=101": '{"seed": 101}',
    }
    rows = pd.DataFrame(
        {
            "plain_arm": arm, "arm": f"run · {arm}", "selector": arm.split(":")[0], "budget": arm.split(":")[1],
            "arguments": arguments,
        }
        for arm, arguments in arms.items()
        for _ in range(2)
    )  # fmt: skip
    found = {(sweep.family, sweep.factor, tuple(sweep.arms)): sweep for sweep in one_factor_sweeps(rows)}
    assert set(found) == {
        ("target:0.3", "weight", ("0.5", "0.85", "1.0")),
        ("target:0.3", "top", ("2", "10")),
        ("target:0.3", "weight", ("0.5", "0.85")),
    }
    weight = found["target:0.3", "weight", ("0.5", "0.85", "1.0")]
    assert weight.frozen == "0.85"
    assert weight.arms["0.85"] == "run · target:0.3"
    assert found["target:0.3", "weight", ("0.5", "0.85")].frozen is None, "neither of them is the plain arm"


COLUMNS = {
    "accuracy": "delta_accuracy_vs_all", "hfpr": "delta_hFPR_vs_all", "auroc": "delta_AUROC_vs_all",
    "pos_ecr": "delta_PosECR_vs_all", "anchor_ecr": "delta_AncECR_vs_all", "neg_src": "delta_NegSRC_vs_all",
}  # fmt: skip


def judged(arm: str, correct: list[bool]) -> pd.DataFrame:
    """One positive and one negative an image; the negatives' answers are given."""
    return pd.concat(
        pd.DataFrame(
            {
                "arm": arm, "probe_id": [f"{n}-{label}" for n in range(len(correct))],
                "image_id": [str(n) for n in range(len(correct))], "label": label,
                "correct": True if label == "yes" else correct,
                "margin": [1.0 if label == "yes" else (-1.0 if right else 1.0) for right in correct],
            }
        )
        for label in ("yes", "no")
    )  # fmt: skip


def test_the_change_of_every_arm_and_metric_and_the_largest_of_them(refused: Refused) -> None:
    every = pd.concat([judged("full", [True, True, False, False]), judged("grid:0.3", [True, False, True, True])])
    kept = every[every["image_id"].isin(["0", "1"])]
    found = filter_effects(every, kept, ["hfpr", "accuracy"]).set_index(["arm", "metric"])["change"]
    changes = {("full", "hfpr"): -0.5, ("full", "accuracy"): 0.25}
    changes |= {("grid:0.3", "hfpr"): 0.25, ("grid:0.3", "accuracy"): -0.125}
    assert found.to_dict() == pytest.approx(changes)
    (line,) = largest_changes(every, kept, ["hfpr"]).to_dict("records")
    assert (line["arm"], line["all"], line["kept"]) == ("full", 0.5, 0.0), "it may be downwards"
    positives = every[every["label"] == "yes"]
    assert "hfpr" not in set(filter_effects(every, positives, ["hfpr", "accuracy"])["metric"])
    refused("no metric can be computed", largest_changes, every, positives, ["hfpr"])


def test_the_published_largest_changes_are_those_of_the_published_table(data: Path) -> None:
    path = data / "protocol" / "paper_evidence" / "locked_confirmation_valid465_full_metrics.csv"
    with path.open(encoding="utf-8", newline="") as stream:
        printed = list(csv.DictReader(stream))
    block = PAPER_TABLES.get("S7").blocks[1]
    for line, model in zip(block.lines, ("Qwen3-VL-8B", "LLaVA-1.5-7B"), strict=True):
        assert line.words[0] in model or MODELS[line.model].short == line.words[0]
        own = [row for row in printed if row["model"] == model]
        assert own
        assert [column.key for column in block.columns] == list(COLUMNS)
        largest = [max((float(row[COLUMNS[name]]) for row in own), key=abs) for name in COLUMNS]
        assert line.published == tuple(round(change, 3) for change in largest)


IMAGES, DRAWS = 24, 400
ROLES = {"target": "method", "shuffled": "control", "random": "control", "evidence_only": "oracle", "full": "reference"}


@pytest.fixture
def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    parts = []
    for arm in ("full", "target:0.2", "target:0.3", "shuffled:0.3", "random:0.3", "evidence_only:0.3"):
        selector, _, budget = arm.partition(":")
        for label in ("yes", "no"):
            parts.append(
                pd.DataFrame(
                    {
                        "model": "m", "arm": arm, "plain_arm": arm, "selector": selector, "role": ROLES[selector],
                        "budget": budget or "1.0", "intervention": "none", "view": "orig", "label": label,
                        "probe_id": [f"{i}{label}" for i in range(IMAGES)], "image_id": [f"{i}" for i in range(IMAGES)],
                        "margin": rng.normal(size=IMAGES), "keep": 0.3, "ecr": rng.random(IMAGES),
                        "anchor_ecr": rng.random(IMAGES),
                    }
                )
            )  # fmt: skip
    found = pd.concat(parts, ignore_index=True)
    found["predicted"] = np.where(found["margin"] >= 0, "yes", "no")
    return found.assign(correct=found["predicted"] == found["label"])


@pytest.mark.usefixtures("plain_percentiles")
def test_the_change_is_control_minus_arm_over_the_same_draws(rows: pd.DataFrame, refused: Refused) -> None:
    (line,) = shuffled_frame(rows, draws=DRAWS).to_dict("records")
    assert (line["arm"], line["control"], line["n"]) == ("target:0.3", "shuffled:0.3", 2 * IMAGES)
    counts = np.concatenate(list(count_blocks(IMAGES, DRAWS, SEED))).astype(int)
    drawn = [np.repeat(np.arange(IMAGES), row) for row in counts]
    for metric, column in (("pn_average", "ecr"), ("anchor_pn_average", "anchor_ecr")):
        table = rows.pivot_table(index=["arm", "label"], columns="image_id", values=column).sort_index(axis=1)
        control, arm = (table.loc[name].to_numpy() for name in ("shuffled:0.3", "target:0.3"))
        assert line[metric] == pytest.approx(arm.mean())
        assert line[f"control_{metric}"] == pytest.approx(control.mean())
        assert line[f"delta_{metric}"] == pytest.approx(control.mean() - arm.mean())
        changes = [(control[:, images] - arm[:, images]).mean() for images in drawn]
        bounds = (line[f"delta_{metric}_low"], line[f"delta_{metric}_high"])
        assert bounds == pytest.approx(tuple(np.quantile(changes, [0.025, 0.975])))
    refused("add it, for example shuffled:0.3", shuffled_frame, rows[rows["selector"] != "shuffled"], draws=DRAWS)
