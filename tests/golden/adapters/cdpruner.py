"""CDPruner: the greedy determinantal subset; the published code rescales relevance over its whole batch."""

from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.cdpruner import cdpruner_order, conditional_relevance, text_dissimilarity
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    features, patches, texts = (torch.from_numpy(case.inputs[n]) for n in ("features", "image_embeds", "text_embeds"))
    batched = bool(case.params.get("batched"))
    if not batched:
        features, patches = features[None], patches[None]
    relevance = conditional_relevance(text_dissimilarity(patches, texts), across_batch=True)
    kept = cdpruner_order(features, relevance, case.params["K"]).sort(dim=1).values
    if batched:
        return {"mask": torch.zeros(features.shape[:2], dtype=torch.bool).scatter_(1, kept, True)}
    return {"kept": kept[0]}
