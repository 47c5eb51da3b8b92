"""Every recorded run of the artifact, again: masks, geometry, losses and decisions, under the artifact profile."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from sightline.engine.scoring import score_arm
from sightline.geometry.coverage import RegionGeometry
from tests.golden_e2e.reference import Encoder, Run, arm_of, probes_for

SCORE_GAP = 1e-6
"""Below this distance between the last kept and the first dropped score, another kernel may swap two tokens."""
LOSS = 1e-4


def test_recorded_run(
    golden_run: Run, encoder: Encoder, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    record_property("golden", golden_run.method)
    if golden_run.entry["selector"] == "fastv":
        pytest.skip("the recorded FastV reads its mask off the scored answer and lets text see later tokens")
    assert golden_run.records, "the manifest names a run without records"
    arm = arm_of(golden_run, tmp_path)
    probes = probes_for(golden_run.folder, golden_run.entry["probes"])
    asked = [probes[record["sample_id"], record["probe"]] for record in golden_run.records]
    encoded = [encoder.encode(golden_run, probe) for probe in asked]
    policy = golden_run.entry["position_mode"]
    policy = policy if policy in ("compact", "preserve") else "preserve"
    scored = score_arm(encoder.step(golden_run), arm, asked, encoded, policy, batch_tokens=8192)

    same = 0
    for record, probe, picture, ours in zip(golden_run.records, asked, encoded, scored, strict=True):
        where = f"{golden_run.name} {record['sample_id']} {record['probe']}"
        if "full_tokens" in record:
            assert picture.n == record["full_tokens"], where
            assert ours.k == record["kept_tokens"], where
        if "kept" in record:
            kept = np.flatnonzero(ours.anchors)
            if not np.array_equal(kept, np.sort(record["kept"])):
                assert record.get("score_gap", 1.0) < SCORE_GAP, f"{where}: another mask"
                continue
        same += 1
        check_geometry(record, probe.visible_boxes, picture.cells, ours.lineage, ours.anchors, where)
        assert ours.answer.loss_yes == pytest.approx(record["yes_loss"], abs=LOSS), where
        assert ours.answer.loss_no == pytest.approx(record["no_loss"], abs=LOSS), where
        margin = ours.answer.loss_no - ours.answer.loss_yes
        assert ("yes" if margin >= 0 else "no") == record["pred"] or abs(record["margin"]) < LOSS / 10, where
        assert (ours.answer.greedy_yes, ours.answer.greedy_no) == (record["yes_greedy"], record["no_greedy"]), where
    assert same >= 0.9 * len(golden_run.records), "too many near-ties to call this a comparison"


def check_geometry(record, boxes, cells, lineage, anchors, where) -> None:  # type: ignore[no-untyped-def]
    if record.get("ecr") is None or not record.get("regions"):
        return
    geometry = RegionGeometry(cells, boxes).measure(lineage, anchors)
    assert geometry.ecr == pytest.approx(record["ecr"], abs=1e-6), where
    assert geometry.anchor_ecr == pytest.approx(record["anchor_ecr"], abs=1e-6), where
    assert geometry.center_recall == pytest.approx(record["center"], abs=1e-6), where
    assert geometry.patch_recall == pytest.approx(record["patch"], abs=1e-6), where
