from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.fastervlm import head_mean
from sightline.selectors.vispruner import vispruner_kept
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    features, heads = (torch.from_numpy(case.inputs[name])[None] for name in ("features", "cls_attn_heads"))
    k = case.params["K"]
    return {"kept": vispruner_kept(features, head_mean(heads), k, int(k * case.params["important_ratio"]))[0]}
