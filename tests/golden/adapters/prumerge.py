from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.prumerge import class_attention, merge_weights, official_centres, outlier_fraction
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    q, k, hidden = (torch.from_numpy(case.inputs[name]) for name in ("q", "k", "hidden"))
    keys = k[None, 1:]
    attention = class_attention(q[None, 0], k[None, 0], keys)
    ratio = float(outlier_fraction(attention)) if case.params["adaptive"] else case.params["reduction_ratio"]
    centres = official_centres(attention[0], ratio, case.params["plus"])
    mix = merge_weights(attention, keys, centres[None])[0]
    return {"anchor": centres, "mix": mix, "n_out": [len(mix)], "tokens": mix @ hidden[1:]}
