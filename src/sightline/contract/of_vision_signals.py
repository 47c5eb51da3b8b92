"""The promises of an architecture about the signals of its vision tower."""

from __future__ import annotations

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from sightline.backbones.signals import BLOCK_KINDS, TOKEN_AXIS
from sightline.contract.contract_page import CheckedPage, said
from sightline.contract.promise import promise

FIRST_STATES = "vision.hidden@0"
"""What the tower holds before any attention: a token's rows have seen its own cell and nothing else."""
SHARE = 4.0
"""How much more a token may be moved that has a finer cell in the same place: a tile's beside the thumbnail's."""
SIGNALS = (*(f"{kind}@-1" for kind in BLOCK_KINDS), "vision.hidden@-2", "vision.cls@-2", "vision.hidden_mean@0:1")
"""Every signal of a vision tower, at layers that the smallest one has."""


def check_signals(page: CheckedPage) -> None:
    """Whatever is served can be computed, has a value per token, and changes no token."""
    backbone = page.backbone
    served = [name for name in SIGNALS if backbone.serves(name) is None]
    encoded = backbone.encode([backbone.preprocess(page.image)], served)[0]
    promise(torch.equal(encoded.tokens, page.encoded.tokens), f"{page.name}: tokens change when signals are asked for")
    for name in served:
        kind = name.split("@")[0]
        try:
            with torch.inference_mode():
                signal = backbone.vision_signal(name, encoded)
        except Exception as error:
            raise AssertionError(f"{page.name}: it serves {name} and fails: {type(error).__name__}: {error}") from error
        promise(bool(torch.isfinite(signal).all()), f"{page.name}: {name} is not finite")
        axis = TOKEN_AXIS.get(kind)
        promise(
            axis is None or (signal.dim() > axis and signal.shape[axis] == encoded.n),
            f"{page.name}: {name} is {tuple(signal.shape)}, not {encoded.n} along axis {axis}",
        )
        if kind in ("vision.cls_attention", "vision.received"):
            promise(bool((signal >= 0).all()), f"{page.name}: {name} is negative somewhere")


def check_rows(page: CheckedPage) -> None:
    """Black in the cell of a token must be seen by the rows that its signals are read from."""
    encoded, backbone = page.encoded, page.backbone
    if backbone.serves(FIRST_STATES) is not None:
        return

    def states(image: Image.Image) -> Tensor:
        with torch.inference_mode():
            shown = backbone.encode([backbone.preprocess(image)], [FIRST_STATES])[0]
            return backbone.vision_signal(FIRST_STATES, shown)

    width, height = page.image.size
    before = states(page.image)
    for token in sorted({0, encoded.n // 3, encoded.n // 2, encoded.n - 1}):
        cell = np.clip(encoded.cells[token], 0.0, 1.0)
        x1, y1, x2, y2 = np.rint(cell * (width, height, width, height)).astype(int).tolist()
        if x1 >= x2 or y1 >= y2:
            continue
        darkened = page.image.copy()
        darkened.paste((0, 0, 0), (x1, y1, x2, y2))
        moved = (states(darkened) - before).norm(dim=1)
        other = encoded.cells[int(moved.argmax())]
        touches = bool((np.minimum(cell[2:], other[2:]) > np.maximum(cell[:2], other[:2])).all())
        promise(
            touches and bool(moved[token] * SHARE >= moved.max()),
            f"{page.name}: black in the cell of token {token} is seen by rows of token {int(moved.argmax())} at "
            f"{said(other)}: signals are read from rows that it is not made from",
        )
