from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.holov import holov_order
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    features, attention = (torch.from_numpy(case.inputs[name])[None] for name in ("features", "cls_attn"))
    params = case.params
    order, unfilled = holov_order(features, attention, params["K"], params["num_patches"], params["alpha"])
    # The published code emits zero vectors, source -1, where Sightline falls back to attention.
    filled = params["K"] - int(unfilled)
    return {"order": torch.cat([order[0, :filled], order.new_full((int(unfilled),), -1)])}
