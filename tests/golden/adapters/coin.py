"""CoIn: pick order from projected tokens and prompt embeddings."""

from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.coin import coin_order
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    visual, text = torch.from_numpy(case.inputs["visual"]), torch.from_numpy(case.inputs["text"])
    params = case.params
    order = coin_order(visual[None], text.mean(dim=0)[None], params["K"], params["alpha"], params["beta"])[0]
    return {"order": order, "kept": order.sort().values}
