"""VLM-Pruner: the public grid is 24 columns wide whatever the number of tokens, and a missed budget stays missed."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from sightline.selectors.vlmpruner import VLMPruner
from tests.golden.adapters.fastv import state_of
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    hidden, keys = torch.from_numpy(case.inputs["hidden"]), torch.from_numpy(case.inputs["keys"])
    state = state_of(len(hidden), case.params["image_start"], case.params["N"], hidden=hidden, key=keys)
    selector = VLMPruner(
        pivots=case.params["pivots"], threshold=case.params["threshold"], batch=case.params["token_batch"]
    )
    state = replace(state, layout=((24, 24),) * math.ceil(case.params["N"] / 576))
    selection = selector.cut(state, case.params["requested"], fill=False)
    assert selection.mix is not None
    tokens = selection.mix @ hidden[state.image]
    return {"kept": selection.anchors, "tokens": tokens[:, : case.outputs["tokens"].shape[1]]}
