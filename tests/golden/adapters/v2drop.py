from __future__ import annotations

from typing import Any

import torch

from sightline.core.selection import LayerState
from sightline.selectors.v2drop import V2Drop
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    given, hidden = (torch.from_numpy(case.inputs[name]) for name in ("given", "hidden"))
    params, n = case.params, int(case.params["N"])
    layer = params["layers_run"] - 1
    assert layer in V2Drop().schedule(n, 1, params["depth"])
    image, source = torch.arange(params["image_start"], params["image_start"] + n), torch.arange(n)
    state = LayerState(layer, hidden, image, source, ((1, n),), {"lm.input": given})
    return {"kept": V2Drop().cut(state, params["K"]).anchors}
