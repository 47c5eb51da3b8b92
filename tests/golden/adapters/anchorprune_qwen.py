"""AnchorPrune on Qwen2.5-VL: attention received by raw patches is grouped and re-ordered as the backbone does it."""

from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.anchorprune import AnchorPruneQwen, anchorprune_order
from tests.golden.harness import Case
from tests.unit.selectors.views import view


def run(case: Case) -> dict[str, Any]:
    inputs, params = {name: torch.from_numpy(value) for name, value in case.inputs.items()}, case.params
    received = inputs["received_mass"].view(-1, 4).mean(dim=1)[inputs["window_index"].argsort()]
    selector = AnchorPruneQwen(
        params["k_min"], params["kmax_ratio"], params["tau"], params["patience"], aggregate=params["agg"]
    )
    question = view(inputs["visual"], query=inputs["text"], signals={"vision.received@-1": received})
    relevance, visual = selector.relevance(question)[None], inputs["visual"][None]
    _, anchor_length = anchorprune_order(
        relevance, visual, received[None], visual, params["K"], params["k_min"], tau=params["tau"]
    )
    return {"kept": selector.select(question, params["K"]).anchors, "anchor_size": anchor_length}
