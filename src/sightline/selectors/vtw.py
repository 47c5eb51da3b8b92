"""VTW: behind one layer no visual token is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch

from sightline.core.selection import LayerSelector, LayerState, Parity, Selection
from sightline.selectors import SELECTORS


@SELECTORS.register("vtw")
@dataclass(frozen=True)
class VTW(LayerSelector):
    """Half-way the text has taken from the image what it needs: behind one layer every visual token is withdrawn.

    Reference: Lin et al., "Boosting Multimodal Large Language Models with Visual Tokens Withdrawal for Rapid Inference"
    (AAAI 2025).

    Schedule: all N tokens are read by the first round(layers K / N) layers, at least one, and none by the others. The
    budget K therefore is the mean over the layers, and ``vtw:0.5`` is the published withdrawal once 16 of 32 layers
    have run; K = N withdraws nothing. Which layer is early enough is searched for on 20 questions of a data set in the
    public code; here it is the budget.
    Costs: reads nothing. The layers in front of the withdrawal cost what they cost unpruned, those behind it what the
    text costs.
    Parity: exact-index. Positions of the text are kept, as in the public code by default; separators of an image in
    tiles are text here and stay.
    Rows: no token is left, so lineage and coverage are empty, whatever the early layers have seen: ``k_layers`` says
    that. ``keep`` is the mean over the layers.
    """

    name: ClassVar[str] = "vtw"
    parity: ClassVar[Parity] = "exact-index"
    budget_counts: ClassVar[Literal["layers"]] = "layers"

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        reading = max(1, round(layers * k / n))
        return {reading - 1: 0 if reading < layers else n}

    def cut(self, state: LayerState, k: int) -> Selection:
        return Selection(torch.arange(k))
