from __future__ import annotations

from typing import Any

import torch

from sightline.core.selection import TokenView
from sightline.selectors.vscan import VScan
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    inputs = {name: torch.from_numpy(array) for name, array in case.inputs.items()}
    signals = {
        "vision.cls_attention@5": inputs["cls_attn_heads_5"],
        "vision.cls_attention@-2": inputs["cls_attn_heads"],
    }
    tokens, nothing = inputs["projected"], torch.zeros(0, 4, dtype=torch.float64)
    chosen = VScan(side=case.params["side"]).select(
        TokenView(tokens, nothing, ((24, 24),), tokens[:0], nothing, signals), case.params["K"]
    )
    assert chosen.mix is not None
    assert chosen.merge_at == "tokens"
    return {"kept": chosen.anchors, "tokens": chosen.mix @ tokens}
