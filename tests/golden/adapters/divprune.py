"""DivPrune: pick order from projected tokens."""

from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.divprune import divprune_order
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    order = divprune_order(torch.from_numpy(case.inputs["features"])[None], case.params["K"])[0]
    return {"order": order, "kept": order.sort().values}
