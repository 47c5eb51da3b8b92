from __future__ import annotations

from typing import Any

import torch

from sightline.core.selection import Selection
from sightline.core.selection_rules import lineage_mask
from sightline.geometry.coverage import RegionGeometry
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    if "anchor" in case.inputs:
        return {"lineage": lineage(case)}
    plane = RegionGeometry(case.inputs["token_boxes_f64"], case.inputs["evidence_f64"], union="sum_above_5000")
    found = plane.measure(case.inputs["kept"])
    return {
        "coverage_f64": [found.ecr],
        "center_recall_f64": [found.center_recall],
        "patch_recall_f64": [found.patch_recall],
        "lpp_f64": [found.lpp],
        "geo_f1_f64": [found.geo_f1],
        "evidence_area_f64": [plane.area],
    }


def lineage(case: Case) -> Any:
    """A merge into contextual tokens leaves no source out; without them an output comes from its anchor alone."""
    n = case.params["N"]
    anchors = torch.from_numpy(case.inputs["anchor"])
    anchors = anchors[anchors < n]
    mix = torch.zeros(len(anchors), n)
    mix[torch.arange(len(anchors)), anchors] = 1.0
    if case.params["contextual_tokens"] > 0:
        mix = torch.cat([mix, torch.ones(1, n)])
    return torch.nonzero(lineage_mask(Selection(anchors, mix), n)).squeeze(-1)
