"""DART: the public count, image pivots + t per pivot, is the budget."""

from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.dart import Dart
from tests.golden.adapters.fastv import state_of
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    hidden, keys = torch.from_numpy(case.inputs["hidden"]), torch.from_numpy(case.inputs["keys"])
    n, image_pivots, text_pivots = (case.params[name] for name in ("N", "pivot_image_token", "pivot_text_token"))
    wanted = case.params["max_num_trunction"]
    wanted = n * (1 - case.params["reduction_ratio"]) if wanted is None else wanted
    pivots = image_pivots + text_pivots
    state = state_of(len(hidden), case.params["image_start"], n, normed=hidden, key=keys)
    selector = Dart(image_pivots=image_pivots, text_pivots=text_pivots)
    return {"kept": selector.cut(state, image_pivots + pivots * int(wanted / pivots)).anchors}
