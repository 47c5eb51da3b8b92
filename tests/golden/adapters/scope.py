"""SCOPE: pick order from hidden states and head-summed class attention."""

from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.scope import scope_order
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    batched = bool(case.params.get("batched"))
    features = torch.from_numpy(case.inputs["features"])
    attention = (
        torch.from_numpy(case.inputs["cls_attn"]) if "cls_attn" in case.inputs else torch.ones(features.shape[:-1])
    )
    if not batched:
        features, attention = features[None], attention[None]
    saliency = attention ** case.params["alpha"]
    order = scope_order(features, saliency, case.params["K"], case.params["combined"])
    order = order if batched else order[0]
    return {"order": order, "kept": order.sort(dim=-1).values}
