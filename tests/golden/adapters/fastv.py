"""FastV: the last attention row goes through the cut; the sequence is every text position and the kept visual ones."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from sightline.core.selection import LayerState
from sightline.selectors.fastv import FastV
from tests.golden.harness import Case


def state_of(length: int, image_start: int, n: int, *, hidden: Tensor | None = None, **signals: Tensor) -> LayerState:
    """A prompt of ``length`` positions whose n visual tokens stand in one block."""
    return LayerState(
        layer=0,
        hidden=torch.zeros(length, 1) if hidden is None else hidden,
        image=torch.arange(image_start, image_start + n),
        source=torch.arange(n),
        layout=((1, n),),
        signals={f"lm.{name}": value for name, value in signals.items()},
    )


def keep_sequence(state: LayerState, anchors: Tensor) -> Tensor:
    """Absolute positions that survive a deletion: all text, and the visual tokens ``anchors`` names."""
    survives = torch.ones(state.hidden.shape[0], dtype=torch.bool)
    survives[state.image] = False
    survives[state.image[anchors]] = True
    return torch.nonzero(survives).squeeze(1)


def run(case: Case) -> dict[str, Any]:
    row = torch.from_numpy(case.inputs["last_row"])
    state = state_of(row.shape[1], case.params["image_start"], case.params["N"], attention_last=row)
    kept = FastV(fastv_k=case.params["fastv_k"]).cut(state, case.params["K"]).anchors
    return {"kept": kept, "keep_sequence": keep_sequence(state, kept)}
