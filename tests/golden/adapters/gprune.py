from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sightline.selectors.gprune import flow_scores
from sightline.selectors.scores import top
from tests.golden.harness import Case

BASE = 576


def run(case: Case) -> dict[str, Any]:
    features, params = torch.from_numpy(case.inputs["features"]), case.params

    def prune(tokens: Tensor) -> tuple[Tensor, Tensor]:
        graph = (params["similarity"], params["temperature"], params["iterations"])
        score = flow_scores(tokens[None], *graph)[0]
        return score, top(score, int(params["keep_ratio"] * len(tokens)))

    if "rows" not in params:
        return {"kept": prune(features)[1]}
    # The LLaVA-NeXT sequence: base grid, then tile rows that each end in a token which is always kept.
    places = torch.arange(BASE, len(features)).view(params["rows"], params["cols"] + 1)
    inner, row_ends = places[:, :-1].flatten(), places[:, -1]
    score_base, base = prune(features[:BASE])
    score_tiles, tiles = prune(features[inner])
    kept = torch.cat([base, inner[tiles], row_ends]).sort().values
    return {"kept": kept, "score_base": score_base, "score_tiles": score_tiles}
