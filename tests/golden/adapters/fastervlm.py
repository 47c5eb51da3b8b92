from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.fastervlm import head_mean
from sightline.selectors.scores import top
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    score = head_mean(torch.from_numpy(case.inputs["cls_attn_heads"]))
    return {"kept": top(score, case.params["K"]), "score": score}
