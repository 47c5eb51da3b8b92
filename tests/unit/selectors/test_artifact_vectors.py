"""Every selector of the paper's artifact on explicit scores: recorded masks and their geometry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sightline.geometry.coverage import RegionGeometry
from tests.conftest import SHARED
from tests.golden.adapters.audit_rules import kept, view_of

VECTORS = SHARED / "protocol" / "golden_json" / "selectors.json"


def cases() -> list[dict[str, Any]]:
    if not VECTORS.is_file():
        return []
    return json.loads(VECTORS.read_text())["cases"]  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def inputs(shared: Path) -> dict[str, Any]:
    return json.loads(VECTORS.read_text())  # type: ignore[no-any-return]


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
