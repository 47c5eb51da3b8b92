"""AnchorPrune on LLaVA: the selector itself, fed with the tower's tensors."""

from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.anchorprune import AnchorPrune
from tests.golden.harness import Case
from tests.unit.selectors.views import view


def run(case: Case) -> dict[str, Any]:
    inputs, params = {name: torch.from_numpy(value) for name, value in case.inputs.items()}, case.params
    selector = AnchorPrune(params["k_min"], params["kmax_ratio"], params["tau"], params["patience"])
    signals = {
        "clip.image": inputs["clip_patch"],
        "clip.text": inputs["text_embeds"],
        "vision.hidden@-2": inputs["hidden"][1:],
        "vision.cls_attention@-2": inputs["cls_attn_heads"],
    }
    return {"kept": selector.select(view(inputs["hidden"][1:], signals=signals), params["K"]).anchors}
