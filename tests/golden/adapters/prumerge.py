"""PruMerge: centres as published, whose number depends on the attention; the product's own are told how many."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sightline.errors import SightlineError
from sightline.selectors.prumerge import class_attention, merge_weights
from sightline.selectors.scores import rank
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    q, k, hidden = (torch.from_numpy(case.inputs[name]) for name in ("q", "k", "hidden"))
    keys = k[None, 1:]
    attention = class_attention(q[None, 0], k[None, 0], keys)
    ratio = float(outlier_fraction(attention)) if case.params["adaptive"] else case.params["reduction_ratio"]
    centres = official_centres(attention[0], ratio, case.params["plus"])
    mix = merge_weights(attention, keys, centres[None])[0]
    return {"anchor": centres, "mix": mix, "n_out": [len(mix)], "tokens": mix @ hidden[1:]}


def outlier_fraction(attention: Tensor) -> Tensor:
    """Adaptive ratio of the paper: the fraction of patches with a > Q3 + 1.5 (Q3 - Q1), (B, N) -> (B,) float64."""
    quartiles = torch.quantile(attention, attention.new_tensor([0.25, 0.75]), dim=-1, keepdim=True)
    outlying = attention > quartiles[1] + 1.5 * (quartiles[1] - quartiles[0])
    return outlying.sum(dim=-1).double() / attention.shape[-1]


def spatial_ladder(n: int, ratio: float) -> Tensor:
    """The published raster ladder of PruMerge+: 0, s, 2s, ... < n - 1 with s = floor(floor(1 / ratio) / 3)."""
    step = int(int(1 / ratio) / 3) if ratio > 0.0 else 0
    if step < 1:
        raise SightlineError(f"PruMerge+ has no spatial ladder at ratio {ratio:.3f}; use a ratio in (0, 1/3]")
    return torch.arange(0, n - 1, step)


def official_centres(attention: Tensor, ratio: float, plus: bool) -> Tensor:
    """(N,) attention -> centres as published: floor(N * ratio) by attention, then for Plus the ladder without them."""
    n = attention.shape[0]
    centres = rank(attention)[: int(n * ratio)]
    if not plus:
        return centres
    ladder = spatial_ladder(n, ratio).to(centres.device)
    return torch.cat([centres, ladder[~torch.isin(ladder, centres)]])
