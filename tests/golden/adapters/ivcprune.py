"""IVC-Prune: the public code fixes shares of N, not K, so its K and its coordinates' share of it are read off."""

from __future__ import annotations

from typing import Any

import torch

from sightline.core.selection import LayerState
from sightline.selectors.ivcprune import IVCPrune
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    values, rotary = (torch.from_numpy(case.inputs[name]) for name in ("values", "rotary"))
    n, k, start = (int(case.params[name]) for name in ("N", "K", "image_start"))
    image, source = torch.arange(start, start + n), torch.arange(n)
    state = LayerState(0, values[0], image, source, ((1, n),), {"lm.value": values, "lm.rotary": rotary})
    return {"kept": IVCPrune(coordinates=2 * case.params["each"] / k).cut(state, k).anchors}
