from __future__ import annotations

from typing import Any

import torch

from sightline.core.selection import TokenView
from sightline.selectors.pixelprune import PixelPrune
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    pixels, nothing = torch.from_numpy(case.inputs["pixels"]), torch.zeros(0, 4, dtype=torch.float64)
    layout = ((case.params["rows"], case.params["columns"]),)
    view = TokenView(pixels, nothing, layout, pixels[:0], nothing, {"image.pixels": pixels})
    return {"kept": PixelPrune(tolerance=case.params["tolerance"]).select(view, case.params["K"]).anchors}
