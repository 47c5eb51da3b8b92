from __future__ import annotations

from typing import Any

import torch

from sightline.core.selection import TokenView
from sightline.selectors.scores import uniqueness
from sightline.selectors.target import Target
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    tokens = torch.from_numpy(case.inputs["visual"])
    rows, columns = case.params["rows"], case.params["cols"]
    view = TokenView(
        tokens=tokens,
        cells=torch.zeros(len(tokens), 4, dtype=torch.float64),
        layout=((rows, columns),),
        query=torch.from_numpy(case.inputs["text"]),
        boxes=torch.zeros(0, 4, dtype=torch.float64),
    )
    selector = Target(weight=case.params["relevance_weight"], top=case.params["query_topk"])
    return {
        "kept": selector.select(view, case.params["K"]).anchors,
        "score": selector.scores(view),
        "uniqueness": uniqueness(tokens, view.layout),
    }
