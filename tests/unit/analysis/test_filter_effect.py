"""Metrics over the probes that people found valid, against all of them."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest

from sightline.errors import SightlineError
from sightline.paper import MODELS, PAPER_TABLES
from sightline.report.sections.limited_probes import filter_effects, largest_changes

COLUMNS = {
    "accuracy": "delta_accuracy_vs_all", "hfpr": "delta_hFPR_vs_all", "auroc": "delta_AUROC_vs_all",
    "pos_ecr": "delta_PosECR_vs_all", "anchor_ecr": "delta_AncECR_vs_all", "neg_src": "delta_NegSRC_vs_all",
}  # fmt: skip


def rows(arm: str, correct: list[bool]) -> pd.DataFrame:
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


def test_the_change_of_every_arm_and_metric() -> None:
    every = pd.concat([rows("full", [True, True, False, False]), rows("grid:0.3", [True, False, True, True])])
    kept = every[every["image_id"].isin(["0", "1"])]
    found = filter_effects(every, kept, ["hfpr", "accuracy"]).set_index(["arm", "metric"])["change"]
    assert found.loc[("full", "hfpr")] == pytest.approx(-0.5)
    assert found.loc[("full", "accuracy")] == pytest.approx(0.25)
    assert found.loc[("grid:0.3", "hfpr")] == pytest.approx(0.25)
    assert found.loc[("grid:0.3", "accuracy")] == pytest.approx(-0.125)


def test_the_largest_change_may_be_downwards() -> None:
    every = pd.concat([rows("full", [True, True, False, False]), rows("grid:0.3", [True, False, True, True])])
    kept = every[every["image_id"].isin(["0", "1"])]
    (line,) = largest_changes(every, kept, ["hfpr"]).to_dict("records")
    assert (line["arm"], line["all"], line["kept"]) == ("full", 0.5, 0.0)


def test_what_cannot_be_computed_is_left_out_and_nothing_at_all_is_said() -> None:
    every = rows("full", [True, False])
    positives = every[every["label"] == "yes"]
    assert "hfpr" not in set(filter_effects(every, positives, ["hfpr", "accuracy"])["metric"])
    with pytest.raises(SightlineError, match="no metric can be computed"):
        largest_changes(every, positives, ["hfpr"])


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
