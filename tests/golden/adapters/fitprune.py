"""FitPrune: recorded attention onto the visual keys, padded to a square; the published schedule read back from K."""

from __future__ import annotations

import itertools
from typing import Any

import torch

from sightline.selectors.fitprune import DELETED_PER_LAYER, REFERENCE_TOKENS, FitPrune
from tests.golden.adapters.fastv import state_of
from tests.golden.harness import Case


def deleted(reduction: int) -> list[int]:
    left = [REFERENCE_TOKENS]
    schedule = FitPrune().schedule(REFERENCE_TOKENS, REFERENCE_TOKENS - sum(DELETED_PER_LAYER[reduction]), 32)
    for layer in range(32):
        left.append(schedule.get(layer, left[-1]))
    return [before - after for before, after in itertools.pairwise(left)]


def run(case: Case) -> dict[str, Any]:
    if "reduction_ratio" in case.inputs:
        return {"deleted_per_layer": [deleted(int(ratio)) for ratio in case.inputs["reduction_ratio"]]}
    attention = torch.from_numpy(case.inputs["attn"])
    length, n = attention.shape[1], attention.shape[2]
    state = state_of(length, 0, n, attention=torch.nn.functional.pad(attention, (0, length - n)))
    return {"kept": FitPrune().cut(state, n - case.params["delete"]).anchors}
