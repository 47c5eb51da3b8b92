"""The audit as a user runs it: every image encoded once, rows that depend on nothing but the probe and the arm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import sightline
from sightline.answering.scorers.yes_no import YesNo
from sightline.auditing.audit import audit
from sightline.backbones.base import Backbone
from sightline.core.row import TIME_COLUMNS, row_schema
from sightline.probes import read_probes
from sightline.rows.picture import TEXTS
from sightline.store.marks import unpack_cells, unpack_mask
from tests.integration.conftest import MODELS, TEN_ARMS


def facts(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows without timings, in an order that does not depend on the run."""
    return frame.drop(columns=list(TIME_COLUMNS)).sort_values(["arm", "probe_id"]).reset_index(drop=True)


@pytest.mark.parametrize("model", MODELS)
def test_rows_carry_the_reporting_contract(config: Any, model: str) -> None:
    run = audit(config(model, arms=TEN_ARMS))
    frame = run.frame()
    assert list(frame.columns) == [*row_schema(YesNo.columns).names, *TEXTS]
    assert len(frame) == 10 * 6, "three images, two probes each, ten arms"
    assert run.missing == 0
    assert set(frame["arm"]) == set(TEN_ARMS)
    assert frame["weight_digest"].str.startswith("sha256:").all()
    assert (frame["keep"] == frame["k_tokens"] / frame["n_tokens"]).all()
    assert (frame["margin"] == frame["loss_no"] - frame["loss_yes"]).all()
    assert ((frame["margin"] >= 0) == (frame["predicted"] == "yes")).all()
    assert frame["ecr"].between(0, 1).all()
    pruned = frame[frame["arm"] == "target:0.3"]
    assert (pruned["sequence_full"] - pruned["sequence_pruned"] == pruned["n_tokens"] - pruned["k_tokens"]).all()
    row: Any
    for row in pruned.itertuples():
        assert unpack_mask(row.kept_mask, row.n_tokens).sum() == row.k_tokens
    layered = frame[frame["arm"] == "fastv:0.5"].iloc[0]
    assert layered["k_layers"][0] == layered["n_tokens"]
    assert layered["k_layers"][-1] == layered["k_tokens"]
    assert layered["keep_layer_mean"] > layered["keep"]
    images = run.images.to_pylist()
    assert len(images) == 3
    assert all(
        len(unpack_cells(image["cells"])) == sum(r * c for r, c in json.loads(image["layout"])) for image in images
    )
    assert len(run.probes) == 6
    copied = read_probes(run.path / "probes.jsonl")
    assert [probe.id for probe in copied.probes] == [record["id"] for record in run.probes]


@pytest.mark.parametrize("model", MODELS)
def test_each_image_is_encoded_once_for_all_probes_and_arms(
    config: Any, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []
    plain = Backbone.encode

    def counted(self: Backbone, batch: Any, needs: Any = ()) -> Any:
        calls.append(len(batch))
        return plain(self, batch, needs)

    monkeypatch.setattr(Backbone, "encode", counted)
    settings = config(model, arms=TEN_ARMS, limit=4, shard_images=3)
    audit(settings)
    assert sum(calls) == 4
    audit(settings)
    assert sum(calls) == 4, "a finished run encodes nothing"


@pytest.mark.parametrize("model", MODELS)
def test_rows_do_not_change_with_arm_order_batch_size_or_sharding(config: Any, model: str, tmp_path: Path) -> None:
    arms = ["full", "target:0.3", "random:0.3", "protected:0.4"]
    first = facts(audit(config(model, arms=arms, out=tmp_path / "a")).frame())
    reordered = facts(audit(config(model, arms=arms[::-1], out=tmp_path / "b")).frame())
    pd.testing.assert_frame_equal(first, reordered)

    alone = facts(audit(config(model, arms=arms, out=tmp_path / "c", batch_tokens=1, shard_images=1)).frame())
    losses = ["loss_yes", "loss_no", "margin"]
    assert first["conditions"].iloc[0] != alone["conditions"].iloc[0], "rows say which batches they come from"
    first, alone = (frame.drop(columns="conditions") for frame in (first, alone))
    pd.testing.assert_frame_equal(first.drop(columns=losses), alone.drop(columns=losses))
    np.testing.assert_allclose(first[losses], alone[losses], atol=1e-5)


def test_adding_an_arm_amends_the_run_and_leaves_its_rows_alone(config: Any, tmp_path: Path) -> None:
    before = audit(config("llava", arms=["full", "target:0.3"]))
    kept = {path: path.stat().st_mtime_ns for path in before.path.glob("rows/*/*.parquet")}
    after = audit(config("llava", arms=["random:0.3"]))
    assert after.arms == ["full", "target:0.3", "random:0.3"]
    assert all(path.stat().st_mtime_ns == when for path, when in kept.items())
    whole = audit(config("llava", arms=["random:0.3", "full", "target:0.3"], out=tmp_path / "whole"))
    pd.testing.assert_frame_equal(facts(after.frame()), facts(whole.frame()))


def test_both_position_policies_on_every_architecture(config: Any, tmp_path: Path) -> None:
    for model in MODELS:
        margins = {}
        for policy in ("preserve", "compact"):
            run = audit(config(model, arms=["full", "grid:0.3"], positions=policy, out=tmp_path / model / policy))
            frame = run.frame()
            assert set(frame["positions"]) == {policy}
            margins[policy] = frame.set_index(["arm", "probe_id"])["margin"]
        full = [margins[policy]["full"] for policy in margins]
        np.testing.assert_allclose(full[0], full[1], atol=1e-6)
        assert not np.allclose(margins["preserve"]["grid:0.3"], margins["compact"]["grid:0.3"], atol=1e-6), model


def test_python_api_gives_tables(config: Any) -> None:
    audit(config("llava"))
    run = sightline.load_run(config("llava").out)
    assert run.rows.num_rows == len(run.frame()) == 18
