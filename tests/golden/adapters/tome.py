from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.tome import match, mean_weights
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    inputs = {name: torch.from_numpy(array) for name, array in case.inputs.items()}
    metric, tokens = inputs["metric"], inputs["x"]
    size = inputs["size"][:, 0] if "size" in inputs else torch.ones(len(metric))
    slot, representative = match(metric[None], case.params["r"], protect_first=case.params["class_token"])
    mix, total = mean_weights(slot, representative.shape[1], size[None])
    return {"assign": slot[0], "size_out": total[0, :, None], "tokens": mix[0] @ tokens}
