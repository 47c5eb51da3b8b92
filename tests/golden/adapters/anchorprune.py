"""AnchorPrune core: kept tokens and the relevance-ranked anchor they start with."""

from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.anchorprune import anchorprune_order
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    inputs = {name: torch.from_numpy(value)[None] for name, value in case.inputs.items()}
    features, params = inputs["features"], case.params
    order, anchor_length = anchorprune_order(
        inputs["relevance"],
        features,
        inputs["importance"],
        inputs.get("expansion_features", features),
        params["K"],
        params["k_min"],
        params["kmax_ratio"],
        params["tau"],
        params["patience"],
    )
    return {"kept": order[0].sort().values, "anchor_order": order[0, : int(anchor_length)]}
