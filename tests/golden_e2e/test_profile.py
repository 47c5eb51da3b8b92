"""``sightline run --profile artifact`` itself, from probe file to rows, against recorded runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.store.marks import unpack_mask
from tests.golden_e2e.reference import PREFIX, Run, read_runs

ARMS = {
    ("llava", "embed_protected_topk"): "protected:0.4",
    ("llava", "embed_shuffled_topk"): "shuffled:0.4",
    ("llava", "grid"): "grid:0.4",
    ("llava", "random"): "random:0.4",
    ("llava", "topk"): "evidence_only:0.4",
    ("llava", "bottomk"): "anti_evidence:0.4",
    ("llava", "target_embed_rise"): "rise:0.4",
    ("llava", "visionzip"): "visionzip:0.4",
    ("internvl", "grid"): "grid:0.5",
    ("internvl", "target_embed_soft_evidence_topk"): "soft_evidence:0.5",
    ("internvl", "target_embed_protected_topk"): "protected:0.5",
    ("internvl", "target_embed_shuffled_topk"): "shuffled:0.5",
    ("qwen3vl", "grid"): "grid:0.3",
    ("qwen3vl", "target_embed_protected_topk"): "protected:0.3",
    ("qwen3vl", "target_embed_shuffled_topk"): "shuffled:0.3",
    ("qwen3vl", "target_embed_grid_topk"): "target_grid:0.3",
    ("qwen3vl", "topk"): "evidence_only:0.3",
}
"""Artifact selector -> the plain arm that must give its rows once the profile is on."""


@pytest.fixture(scope="module")
def runs(data: Path) -> list[Run]:
    return read_runs(data / "golden_e2e")


@pytest.mark.parametrize("model", ["llava", "internvl", "qwen3vl"])
def test_the_profile_alone_reproduces_recorded_rows(runs: list[Run], data: Path, tmp_path: Path, model: str) -> None:
    arms = [arm for (owner, _), arm in ARMS.items() if owner == model]
    limits = {"min_pixels": 200704, "max_pixels": 200704} if model == "qwen3vl" else {}
    run = audit(
        AuditConfig(
            model=str(data / "tiny" / model),
            probes=data / "golden_e2e" / "inputs" / "probes_dev.jsonl",
            images=data / PREFIX,
            image_prefix=PREFIX,
            out=tmp_path / "run",
            arms=arms,
            profile="artifact",
            device="cpu",
            dtype="float32",
            limit=6,
            matched_controls=False,
            **limits,
        )
    )
    rows = run.frame().set_index(["selector", "probe_id"])
    compared = 0
    for (owner, name), arm in ARMS.items():
        if owner != model:
            continue
        keep = float(arm.split(":")[1])
        recorded = next(
            r
            for r in runs
            if r.entry["model"] == model
            and r.entry["selector"] == name
            and r.entry["keep_ratio"] == keep
            and r.entry["seed"] == 13
            and r.entry["probes"] == "probes_dev.jsonl"
            and r.entry.get("max_pixels", 200704) == 200704
            and r.entry.get("evidence_boost", 0.05) == 0.05
            and "replayed_masks" not in r.entry
            and r.entry["position_mode"] != "preserve"
            and not r.name.startswith("internvl_tv")
        )
        for record in recorded.records:
            key = (arm.split(":")[0], record["sample_id"])
            if key not in rows.index:
                continue
            row = rows.loc[key]
            kept = np.flatnonzero(unpack_mask(row["kept_mask"], row["n_tokens"]))
            if record.get("score_gap", 1.0) < 1e-6 and not np.array_equal(kept, np.sort(record["kept"])):
                continue
            where = f"{recorded.name} {record['sample_id']}"
            assert kept.tolist() == sorted(record["kept"]), where
            assert row["loss_yes"] == pytest.approx(record["yes_loss"], abs=1e-4), where
            assert row["loss_no"] == pytest.approx(record["no_loss"], abs=1e-4), where
            assert row["predicted"] == record["pred"], where
            assert row["ecr"] == pytest.approx(record["ecr"], abs=1e-6), where
            compared += 1
    assert compared >= 6 * len(arms), compared
