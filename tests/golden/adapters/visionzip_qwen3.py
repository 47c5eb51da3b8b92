"""VisionZip on Qwen3-VL: the selector's merge plan on tokens and DeepStack maps, its signals, and the budget split."""

from __future__ import annotations

from typing import Any

import torch

from sightline.selectors.visionzip import VisionZipQwen, received_salience, split_budget
from tests.golden.harness import Case
from tests.unit.selectors.views import view


def run(case: Case) -> dict[str, Any]:
    inputs = {name: torch.from_numpy(value) for name, value in case.inputs.items()}
    if "attn" in inputs:
        return _signals(inputs["attn"], inputs["key"], case.params["spatial_merge_unit"])
    if "K" in inputs:
        llava = [split_budget(k, class_token=True) for k in inputs["K"].tolist()]
        qwen = [split_budget(k, class_token=False) for k in inputs["K"].tolist()]
        return {
            "llava_dominant": [dominant for dominant, _ in llava],
            "llava_contextual": [contextual for _, contextual in llava],
            "qwen_dominant": [dominant for dominant, _ in qwen],
            "qwen_contextual": [contextual for _, contextual in qwen],
        }
    k, tokens = case.params["K"], inputs["image_embeds"]
    signals = {"vision.received@-1": inputs["salience"], "vision.key@-1": inputs["metric"][None]}
    selection = VisionZipQwen().select(view(tokens, signals=signals), k)
    mix = selection.mix if selection.mix is not None else torch.eye(len(tokens))[selection.anchors]
    dominant, contextual = split_budget(k, class_token=False) if selection.mix is not None else (k, 0)
    return {
        "anchor": selection.anchors,
        "assign": mix.argmax(dim=0),  # a source that flows nowhere counts as slot 0 there
        "tokens": mix @ tokens,
        "deepstack0_out": mix @ inputs["deepstack0"],
        "contextual": [contextual],
        "dominant": [dominant],
    }


def _signals(attention: torch.Tensor, key: torch.Tensor, group: int) -> dict[str, Any]:
    """As the backbone provides them: received attention and keys, averaged over the raw patches of a merged token."""
    received = attention.mean(dim=(0, 1)).view(-1, group).mean(dim=1)
    keys = key.unflatten(1, (-1, group)).mean(dim=2)
    salience, metric = received_salience(received[None], keys[None])
    return {"salience": salience[0], "metric": metric[0]}
