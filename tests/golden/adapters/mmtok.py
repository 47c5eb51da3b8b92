from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.mmtok import coverage, mmtok_kept
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    tokens, features, text = (torch.from_numpy(case.inputs[name]) for name in ("visual", "visual_clip", "text"))
    params = case.params
    covers = coverage(tokens, features, text, params["alpha"], params["tv_temp"], params["vv_temp"])
    excluded = torch.zeros(1, len(tokens), dtype=torch.bool)
    excluded[:, params["padding"] or []] = True
    return {"kept": mmtok_kept([covers], params["K"], excluded)[0]}
