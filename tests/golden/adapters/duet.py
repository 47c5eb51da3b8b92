from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.duet import local_merge
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    inputs = {name: torch.from_numpy(array) for name, array in case.inputs.items()}
    counts = (case.params[name] for name in ("dominant", "contextual", "width"))
    anchors, mix = local_merge(inputs["received"], inputs["metric"], *counts)
    kept, by_place = anchors.sort()
    return {"kept": kept, "tokens": mix[by_place] @ inputs["projected"]}
