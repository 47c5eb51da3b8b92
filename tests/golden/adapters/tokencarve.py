"""TokenCarve: mode 0, 1, 2 are the rankings both, information, attention."""

from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.tokencarve import TokenCarve
from tests.golden.adapters.fastv import state_of
from tests.golden.harness import Case


def run(case: Case) -> dict[str, Any]:
    hidden, row = torch.from_numpy(case.inputs["layer_out"]), torch.from_numpy(case.inputs["last_row"])
    state = state_of(len(hidden), case.params["image_start"], case.params["N"], hidden=hidden, attention_last=row)
    selector = TokenCarve(
        ranking=("both", "information", "attention")[case.params["mode"]], weight=case.params["weight"]
    )
    kept, source, target = selector.carve(state, case.params["budget"])
    selection = selector.cut(state, case.params["budget"])
    assert selection.mix is not None
    assert torch.equal(selection.anchors, kept)
    tokens = selection.mix @ hidden[state.image]
    return {"kept": kept, "merge_source": source, "merge_target": target, "tokens": tokens}
