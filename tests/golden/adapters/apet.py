from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.apet import compressed, farthest_points
from sightline.selectors.greedy import gram
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    hidden, params = torch.from_numpy(case.inputs["hidden"]), case.params
    products = gram(hidden.double().unsqueeze(0))[0]
    basis = farthest_points(products, torch.tensor([params["first"]]), params["basis"])
    anchors, mix = compressed(products, basis, params["K"])
    anchors, by_place = anchors.sort()
    return {
        "order": basis,
        "passed": (mix.sum(dim=0) == 0).nonzero().flatten(),
        "anchor": anchors,
        "tokens": mix[by_place] @ hidden,
    }
