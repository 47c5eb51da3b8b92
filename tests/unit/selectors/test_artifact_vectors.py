"""The paper's artifact on explicit scores and on real tokens: recorded scores, masks and their geometry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from sightline.geometry.coverage import RegionGeometry
from sightline.selectors.scores import relevance, top, uniqueness
from tests.conftest import DATA
from tests.golden.adapters.audit_rules import kept, view_of

VECTORS = DATA / "protocol" / "golden_json" / "selectors.json"


def cases() -> list[dict[str, Any]]:
    return json.loads(VECTORS.read_text())["cases"]


@pytest.fixture(scope="module")
def inputs() -> dict[str, Any]:
    return json.loads(VECTORS.read_text())


@pytest.mark.parametrize("case", cases(), ids=lambda c: f"{c['selector']}-{c['geometry']}-{c['rho']}-{c['evidence']}")
def test_artifact_mask_and_geometry(case: dict[str, Any], inputs: dict[str, Any]) -> None:
    rule, where, settings = case["selector"], case["geometry"], inputs["settings"]
    cells, regions = inputs["boxes"][where], inputs["evidence"][case["evidence"]]
    view = view_of(cells, regions, key=settings["salt"].format(rho=case["rho"], selector=rule))
    mask = kept(
        rule,
        inputs["scores"][where],
        inputs["uniqueness"][where],
        view,
        case["K"],
        seed=settings["seed"],
        hybrid_core_ratio=settings["spatial_aware_core" if rule == "spatial_aware" else "hybrid_core"],
        hybrid_context_ratio=settings["hybrid_context"],
        evidence_boost=0.05 if rule == "soft_evidence_topk" else 0.10,
    )
    assert mask.tolist() == case["indices"]
    found = RegionGeometry(cells, regions).measure(mask)
    assert found.ecr == pytest.approx(case["ecr"], abs=1e-9)
    assert found.center_recall == pytest.approx(case["center"], abs=1e-12)
    assert found.patch_recall == pytest.approx(case["patch"], abs=1e-12)
    if case["lpp"] is not None:
        assert found.lpp == pytest.approx(case["lpp"], abs=1e-9)


@pytest.mark.parametrize("index", range(12))
def test_scores_of_real_tokens(index: int, data: Path) -> None:
    """Projected tokens and target spans of the tiny checkpoints: relevance, uniqueness and the Target mask."""
    folder = data / "golden_e2e"
    sample = json.loads((folder / "samples_shared.json").read_text())[index]
    model, probe = sample["model"], sample["sample_id"]
    arrays = np.load(folder / "samples_shared.npz")
    tokens, score, unlike = (
        torch.from_numpy(arrays[f"{model}/{probe}/{name}"]) for name in ("visual_embeds", "score", "uniqueness")
    )
    ids = [token for token, count in sample["yes_ids_run_length"] for _ in range(count)]
    with safe_open(data / "tiny" / model / "model.safetensors", "pt") as weights:
        table = next(weights.get_tensor(key) for key in weights.keys() if key.endswith("embed_tokens.weight"))  # noqa: SIM118
    query = table[[ids[position] for position in sample["target_positions"]]]
    torch.testing.assert_close(relevance(tokens, query), score, atol=2e-6, rtol=0)
    # The artifact lays all tiles of InternVL side by side; Qwen's images of this set are 12 x 16 or 16 x 12 tokens.
    rows = {"llava": [24], "internvl": [8], "qwen3vl": [12, 16]}[model]
    differences = [float((uniqueness(tokens, ((r, len(tokens) // r),)) - unlike).abs().max()) for r in rows]
    assert min(differences) < 1e-6
    assert top(relevance(tokens, query).double(), len(sample["kept_indices"])).tolist() == sample["kept_indices"]
