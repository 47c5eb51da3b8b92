"""VisionZip on LLaVA: golden sources number the class token 0 and patches from 1; ours put it behind the patches."""

from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.visionzip import merge_plan, with_class_token
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    inputs, params = {name: torch.from_numpy(value) for name, value in case.inputs.items()}, case.params
    salience, metric = inputs["cls_attn_heads"].sum(dim=0)[None], inputs["metric"][1:][None]
    dominant, contextual = params["dominant"] - 1, params["contextual"]
    anchors, mix = (part[0] for part in with_class_token(*merge_plan(salience, metric, dominant, contextual)))
    ranked, _ = merge_plan(salience, metric, dominant, contextual, ranked=True)
    mix = mix.roll(1, dims=1)
    return {
        "assign": mix.argmax(dim=0),
        "weight": mix.sum(dim=0),
        "tokens": mix @ inputs["hidden"],
        "dominant_sorted": anchors[: dominant + 1] + 1,
        "topk_order": torch.cat([torch.zeros(1, dtype=torch.int64), ranked[0, :dominant] + 1]),
    }
