"""A token view from tensors alone, for selectors that look at no geometry."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from sightline.core.selection import TokenView


def view(tokens: Tensor, query: Tensor | None = None, signals: Mapping[str, Tensor] | None = None) -> TokenView:
    n, d = tokens.shape
    return TokenView(
        tokens=tokens,
        cells=torch.zeros(n, 4, dtype=torch.float64),
        layout=((1, n),),
        query=torch.zeros(0, d) if query is None else query,
        boxes=torch.zeros(0, 4, dtype=torch.float64),
        signals=signals or {},
    )
