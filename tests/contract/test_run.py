"""All servable methods of an architecture in one audit: what ``sightline run`` writes for each of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sightline.auditing.audit import audit
from sightline.auditing.config import AuditConfig
from sightline.selectors import SELECTORS
from tests.contract.cast import MODELS, SHALLOW, servable

IMAGES = 2
PROBES = "golden_e2e/inputs/probes_dev.jsonl"


@pytest.mark.parametrize("model", MODELS)
def test_every_servable_method_writes_its_rows(data: Path, tmp_path: Path, model: str) -> None:
    methods = [name for name in servable(model) if name not in ("full", "masks")]
    arms = ["full", *(f"{name}:0.3" + (f":{SHALLOW[name]}" if name in SHALLOW else "") for name in methods)]
    run = audit(
        AuditConfig(
            model=str(data / "tiny" / model),
            probes=data / PROBES,
            images=data / "mini_textocr",
            image_prefix="mini_textocr",
            out=tmp_path / "run",
            arms=arms,
            clip=str(data / "tiny" / "clip"),
            dtype="float32",
            device="cpu",
            limit=IMAGES,
            image_options=dict(MODELS[model]),
        )
    )
    rows = run.rows.to_pandas()
    assert rows.groupby("selector").size().nunique() == 1, "an arm has more rows than another"
    assert set(rows["selector"]) == {"full", *methods}
    assert rows["image_id"].nunique() == IMAGES
    assert rows.groupby("selector")["probe_id"].nunique().min() >= IMAGES

    for column in ("ecr", "anchor_ecr", "center_recall", "patch_recall", "lpp", "geo_f1", "worst_region"):
        assert rows[column].notna().all(), column
        assert rows[column].between(0.0, 1.0).all(), column
    assert (rows["anchor_ecr"] <= rows["ecr"] + 1e-12).all(), "anchors cannot cover more than the lineage"

    pruned = rows[rows["selector"] != "full"]
    assert (pruned["k_tokens"] == -(-pruned["n_tokens"] * 3 // 10)).all()
    assert (pruned["sequence_full"] - pruned["sequence_pruned"] == pruned["n_tokens"] - pruned["k_tokens"]).all()
    for name, group in rows.groupby("selector"):
        inside = hasattr(SELECTORS.get(str(name)), "cut")
        assert group["k_layers"].notna().all() == inside, f"{name}: tokens per layer"
        if inside:
            for layers, n, k in zip(group["k_layers"], group["n_tokens"], group["k_tokens"], strict=True):
                assert layers[0] == n
                assert layers[-1] == k
    assert all(json.loads(text) is not None for text in rows["arguments"])
