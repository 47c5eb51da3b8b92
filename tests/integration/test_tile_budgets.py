"""Budgets of every tile's own, audited like all others: rows, controls, interventions, resuming, report, gate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from sightline.arms.arm import parse_arm
from sightline.auditing.audit import audit
from sightline.auditing.mask_export import exported_masks
from sightline.gate.decisions import run_gate
from sightline.report.build import build_report
from sightline.rows.run import Run
from sightline.store.marks import unpack_mask
from tests.integration.test_audit import facts

ARMS = ["full", "target:0.3/tile", "target:0.3", "random:0.3/tile", "random:6t/tile", "tome:0.5/tile:metric=tokens"]


@pytest.fixture
def run(config: Any) -> Run:
    return audit(config("internvl", arms=ARMS, limit=2, min_tiles=2, interventions=["deletion"], matched_controls=True))


def kept_by_tile(run: Run, row: Any) -> tuple[list[int], list[int]]:
    """Tokens of every tile of a row's image, and how many of them were kept."""
    records = {record["image_key"]: json.loads(record["layout"]) for record in run.images.to_pylist()}
    sizes = [rows * columns for rows, columns in records[row.image_key]]
    mask = unpack_mask(row.kept_mask, row.n_tokens)
    return sizes, [int(part.sum()) for part in np.split(mask, np.cumsum(sizes)[:-1])]


def test_every_tile_keeps_its_share_and_controls_are_matched(run: Run) -> None:
    frame = run.frame()
    assert {"grid:0.3/tile", "grid:0.3", "random:0.3"} <= set(run.arms), "controls have the budgets of their arms"
    for text in ("target:0.3/tile", "random:0.3/tile", "grid:0.3/tile", "random:6t/tile", ARMS[-1]):
        budget = parse_arm(text).budget
        rows = frame[frame["arm"] == text]
        assert (rows["budget"] == str(budget)).all()
        assert len(rows) == 4
        row: Any
        for row in rows.itertuples():
            sizes, kept = kept_by_tile(run, row)
            assert len(sizes) > 1, "the image is cut into tiles"
            assert kept == [budget.resolve(size) for size in sizes]
            assert row.k_tokens == sum(kept)
            assert row.keep == row.k_tokens / row.n_tokens
    merged = frame[frame["arm"] == ARMS[-1]]
    assert merged["lineage_mask"].notna().all()
    plain = frame[frame["arm"] == "target:0.3"]
    assert any(len(set(kept_by_tile(run, row)[1])) > 1 for row in plain.itertuples()), "tiles share the usual budget"


def test_interventions_act_on_what_the_tiles_kept(run: Run) -> None:
    frame = run.frame().set_index(["arm", "probe_id"])
    removed = frame.loc["target:0.3/tile+remove_evidence"]
    whole = frame.loc["target:0.3/tile"].loc[removed.index]
    assert (removed["plain_arm"] == "target:0.3/tile").all()
    assert (removed["budget"] == "0.3/tile").all()
    assert (removed["k_tokens"] <= whole["k_tokens"]).all()
    row: Any
    for row, plain in zip(removed.itertuples(), whole.itertuples(), strict=True):
        before, after = (unpack_mask(each.kept_mask, each.n_tokens) for each in (plain, row))
        assert not (after & ~before).any()


def test_report_gate_and_masks_read_such_a_run(run: Run, tmp_path: Path) -> None:
    rows = [path for path in run.path.glob("rows/*") if path.is_dir()]
    assert len(rows) == len(run.arms), "a slash in an arm makes no folder"
    build_report([run.path], tmp_path / "report")
    main = pd.read_csv(tmp_path / "report" / "tables" / "main.csv")
    assert "target:0.3/tile" in main.to_csv()
    contract = pd.read_csv(tmp_path / "report" / "tables" / "contract.csv")
    assert "0.3/tile" in set(contract["budget"].astype(str))
    outcomes, _ = run_gate(run.path, ["keep(target:0.3/tile) >= 0.3", "keep(target:0.3/tile) <= 0.4"], least_n=1)
    assert [outcome.passed for outcome in outcomes] == [True, True]
    lines = list(exported_masks(run, "target:0.3/tile"))
    kept = run.frame().query("arm == 'target:0.3/tile'").set_index("probe_id")["k_tokens"]
    assert {line["sample_id"]: len(line["kept_indices"]) for line in lines} == kept.to_dict()


def test_what_is_missing_is_made_again_with_the_same_rows(config: Any) -> None:
    settings = config("internvl", arms=ARMS, min_tiles=2, shard_images=1)
    undisturbed = facts(audit(settings).frame())
    written = sorted(settings.out.glob("rows/*/00001.parquet"))
    assert len(written) == len(ARMS)
    for file in written:
        file.unlink()
    resumed = audit(settings)
    assert resumed.missing == 0
    pd.testing.assert_frame_equal(facts(resumed.frame()), undisturbed)


@pytest.mark.parametrize("model", ["llava", "qwen3vl"])
def test_on_one_grid_rows_are_those_of_the_plain_budget(config: Any, model: str) -> None:
    frame = audit(config(model, arms=["random:0.3", "random:0.3/tile", "target:9t", "target:9t/tile"])).frame()
    differing = ["arm", "plain_arm", "budget", "levels"]
    for plain in ("random:0.3", "target:9t"):
        first, second = (facts(frame[frame["arm"] == arm]).drop(columns=differing) for arm in (plain, f"{plain}/tile"))
        pd.testing.assert_frame_equal(first, second)


def test_a_count_beyond_every_tile_is_noted(config: Any, capfd: pytest.CaptureFixture[str]) -> None:
    audit(config("internvl", arms=["random:5000t/tile"], limit=1))
    assert "random:5000t/tile keeps all" in capfd.readouterr().err
