"""SparseVLM: one stage with the published budget and the recorded density noise."""

from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.sparsevlm import (
    PUBLISHED_BUDGETS,
    PUBLISHED_LAYERS,
    cluster_count,
    keep_and_recycle,
    rated,
    raters,
    recycled_count,
)
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    inputs = {name: torch.from_numpy(value) for name, value in case.inputs.items()}
    start, n = case.params["image_start"], case.params["N"]
    visual, text = slice(start, start + n), slice(start + n, None)
    chosen = raters(inputs["embeds"], visual, text)
    score = rated(inputs["attn_text_vis"], chosen, torch.arange(n))
    budget = PUBLISHED_BUDGETS[case.params["retain"]][PUBLISHED_LAYERS.index(case.params["layer"])]
    kept = min(budget, n - 1)
    noise = inputs["density_noise"]
    assert recycled_count(n, kept) == len(noise)
    hidden, clusters = inputs["layer_out"][visual], cluster_count(n, kept)
    stay, recycled, _, mix = keep_and_recycle(score, hidden, kept, clusters, noise)
    return {
        "raters": chosen,
        "score": score,
        "kept": stay,
        "recycled": recycled,
        "cluster_num": [clusters],
        "vis_tokens_out": mix @ hidden,
    }
