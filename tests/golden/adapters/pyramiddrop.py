"""PyramidDrop: the recorded layer has an identity norm and no rotation, so its projections give the attention row."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sightline.selectors.pyramiddrop import PyramidDrop
from tests.golden.adapters.fastv import keep_sequence, state_of
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    features, wq, wk = (torch.from_numpy(case.inputs[name]) for name in ("features", "wq", "wk"))
    heads, ratios, stage = (case.params[name] for name in ("heads", "ratio_list", "stage"))
    query = (features[-1] @ wq.T).view(heads, -1)
    keys = (features @ wk.T).view(len(features), heads, -1).transpose(0, 1)
    state = state_of(
        len(features),
        case.params["image_start"],
        case.params["image_tokens_now"],
        next_attention_last=last_token_attention(query, keys),
    )
    kept = PyramidDrop().cut(state, int(case.params["N"] * ratios[stage + 1])).anchors
    return {"kept": kept, "keep_sequence": keep_sequence(state, kept)}


def last_token_attention(query: Tensor, keys: Tensor) -> Tensor:
    """The attention row of the last token, which may look at every position: softmax(q . k / sqrt(d)) in float32.

    query (..., H, d), keys (..., H, L, d) -> (..., H, L).
    """
    logits = (keys.float() @ query.float().unsqueeze(-1)).squeeze(-1)
    return torch.softmax(logits / query.shape[-1] ** 0.5, dim=-1)
