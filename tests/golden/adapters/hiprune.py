from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.hiprune import cross_neighbours, hiprune_kept
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    shallow, deep = (torch.from_numpy(case.inputs[name])[None, 1:] for name in ("shallow_attn", "deep_attn"))
    neighbours = cross_neighbours(((24, 24),), wrap=True)
    return {"kept": hiprune_kept(shallow, deep, neighbours, case.params["K"], case.params["alpha"])[0]}
