"""Signals per visual token, from what was taken down of the tower's rows and which rows a token is made from."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from sightline.backbones.recorded import received_attention
from sightline.backbones.signals import HIDDEN_KINDS, attention_weights, block_index, hidden_indices, split_name
from sightline.errors import SightlineError

ROWS = "token_rows"
"""Captured with the others: (N, m) rows of the tower, tile behind tile, that each token is made from."""
CLASS_KINDS = ("vision.cls", "vision.cls_attention", "vision.cls_key", "vision.cls_query")


def token_signal(name: str, captured: Mapping[str, Tensor], depth: int, class_token: bool) -> Tensor:
    """A ``vision.*`` signal of one image.

    What a token's m rows have is averaged over them, as its own features are made from all of them. With a
    ``class_token`` every tile begins with one: a token's class attention is that of its own tile, and the class
    token itself is that of the first tile, which shows the whole image.
    """
    kind, _ = split_name(name)
    rows = captured[ROWS]
    if kind in CLASS_KINDS and not class_token:
        raise SightlineError(f"signal {name} does not exist here: this vision tower has no class token")
    if kind in HIDDEN_KINDS:
        states = [captured[f"hidden:{index}"] for index in sorted(hidden_indices([name], depth))]
        if kind == "vision.cls":
            return states[0][0]
        return torch.stack([each[rows].mean(dim=1) for each in states]).mean(dim=0)
    index = block_index(name, depth)
    query, key, bounds = (captured[f"{part}:{index}"] for part in ("query", "key", "bounds"))
    if kind == "vision.key":
        return key[:, rows].mean(dim=2)
    if kind in ("vision.cls_key", "vision.cls_query"):
        return (key if kind == "vision.cls_key" else query)[:, 0]
    scale = float(captured[f"scale:{index}"])
    if kind == "vision.received":
        return received_attention(query, key, bounds, scale)[rows].mean(dim=1)
    if kind == "vision.cls_attention":
        lengths = bounds.tolist()
        tiles = zip(torch.split(query, lengths, dim=1), torch.split(key, lengths, dim=1), strict=True)
        return torch.cat([attention_weights(q[:, :1], k, scale)[:, 0] for q, k in tiles], dim=1)[:, rows].mean(dim=2)
    raise SightlineError(f"signal {name} is not among what can be read from this vision tower")
