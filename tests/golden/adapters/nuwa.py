from __future__ import annotations

import math
from typing import Any

import torch

from sightline.selectors.nuwa import plane, regional_anchors, spatial_weights
from tests.golden.harness import Case

STAGE_ONE = {64: 112, 128: 224, 192: 336}
"""Final token count of the published LLaVA setting -> anchors of its first stage."""


def run(case: Case) -> dict[str, Any]:
    params, inputs = case.params, {name: torch.from_numpy(array) for name, array in case.inputs.items()}
    if "matain_token" in params:
        states = inputs["hidden16_24"][:, 1:]
        features, hidden = states.mean(dim=0), states[-2]
        importance = inputs["cls_attn_heads"].sum(dim=0)
        where, k, per_region = plane(((24, 24),)), STAGE_ONE[params["matain_token"]], 1
        reach = math.sqrt(params["distance"])
    else:
        features, hidden, importance = inputs["sim"], inputs["hidden"], inputs["cls_attn"]
        where, k, per_region = plane(((params["H"], params["W"]),)), params["K"], params["top_n_per_region"]
        reach = params["distance_threshold"]
    anchors = regional_anchors(importance[None], where.regions, k, per_region)
    mix = spatial_weights(features[None], importance[None], anchors, where, reach, params["percentile"])[0]
    return {"anchor": anchors[0], "mix": mix, "tokens": mix @ hidden}
