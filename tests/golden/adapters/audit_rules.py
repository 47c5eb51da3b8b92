"""The artifact's dispatcher on explicit scores, answered by our selectors: shared by the audit selectors' adapters."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from sightline.core.selection import TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.coverage_greedy import coverage_greedy
from sightline.selectors.rise import rise
from sightline.selectors.scores import Scored
from tests.golden.harness import Case
from tests.golden_e2e.reference import from_artifact


def view_of(cells: Any, boxes: Any = (), key: str = "") -> TokenView:
    cells = torch.as_tensor(np.asarray(cells), dtype=torch.float64)
    boxes = torch.as_tensor(np.asarray(boxes), dtype=torch.float64).reshape(-1, 4)
    n = cells.shape[0]
    return TokenView(
        tokens=torch.zeros(n, 1), cells=cells, layout=((1, n),), query=torch.zeros(0, 1), boxes=boxes, key=key
    )


def kept(rule: str, scores: Any, uniqueness: Any, view: TokenView, k: int, **settings: Any) -> Tensor:
    """Ascending indices of the artifact's ``rule`` when the scores are given instead of computed."""
    # An explicit score stands where the target score would.
    name, arguments = from_artifact(f"target_embed_{rule}", **settings)
    selector = cast(Any, SELECTORS.get(name))(**arguments)
    n = view.cells.shape[0]
    if k >= n or not isinstance(selector, Scored):
        return cast(Tensor, selector.select(view, k).anchors)
    scores = torch.as_tensor(np.asarray(scores), dtype=torch.float64)
    if name in ("rise", "coverage_greedy"):
        given = torch.as_tensor(np.asarray(uniqueness), dtype=torch.float64)
        if name == "rise":
            return rise(scores, given, view.cells, k).sort().values
        return coverage_greedy(scores, given, view.cells, view.boxes, k, arguments["boost"]).sort().values
    return selector.choose(scores, view, k).sort().values


def run(case: Case) -> dict[str, Any]:
    params = case.params
    n = len(case.inputs["token_boxes_f64"])
    view = view_of(case.inputs["token_boxes_f64"], case.inputs.get("evidence_f64", np.zeros((0, 4))))
    answer = kept(
        params["selector"],
        case.inputs.get("relevance_f64", np.zeros(n)),
        case.inputs.get("uniqueness_f64", np.zeros(n)),
        view,
        params["K"],
        hybrid_core_ratio=params["hybrid_core_ratio"],
        hybrid_context_ratio=params["hybrid_context_ratio"],
        evidence_boost=params["evidence_boost"],
    )
    return {"kept": answer}
