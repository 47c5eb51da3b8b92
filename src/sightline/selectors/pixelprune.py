"""PixelPrune: drop the tokens whose pixels can be predicted from their neighbours' pixels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import Parity, Ranges, Selection, Selector, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.scores import top


def prediction_errors(pixels: Tensor, layout: tuple[tuple[int, int], ...], tolerance: float) -> Tensor:
    """How far each token's pixels are from those of the neighbour that predicts them, (N,) float32.

    pixels (N, p). With a to the left of x, b above it and c above a, and with d(u, v) = max |u - v| over the p values:
    x is predicted by b where d(c, a) <= tolerance < d(c, b), which an edge between the two columns looks like, else by
    a; e = d(x, its prediction). In the first row a predicts, in the first column b; nothing predicts the first token of
    a block, so its error is infinite. Tokens of different blocks (tiles, thumbnail) predict nothing of one another.
    """
    pixels = pixels.float()
    errors = []
    start = 0
    for rows, columns in layout:
        block = pixels[start : start + rows * columns].view(rows, columns, -1)
        start += rows * columns
        beside = _distance(block[:, 1:], block[:, :-1])
        above = _distance(block[1:], block[:-1])
        error = block.new_full((rows, columns), torch.inf)
        error[0, 1:] = beside[0]
        error[1:, 0] = above[:, 0]
        across, down = beside[:-1], above[:, :-1]
        edge = (down <= tolerance) & (across > tolerance)
        error[1:, 1:] = torch.where(edge, above[:, 1:], beside[1:])
        errors.append(error.flatten())
    return torch.cat(errors)


def _distance(left: Tensor, right: Tensor) -> Tensor:
    return (left - right).abs().amax(dim=-1)


@SELECTORS.register("pixelprune")
@dataclass(frozen=True)
class PixelPrune(Selector):
    """Keeps the tokens whose pixels their neighbours do not predict: on a page, ink and edges instead of paper.

    Reference: Wang et al., "PixelPrune: Pixel-Level Adaptive Visual Token Reduction via Predictive Coding" (2026).
    Needs: the pixel values that each token is made from, as the vision tower is shown them.
    Parity: official-algorithm. Equal to the public rule, at the number of tokens that it keeps, with a tolerance of 0
    and with its form above 0 that is not anchored.
    Acts: deletes before the language model. The paper prunes before the vision tower, which saves the tower's time too
    and hides the pruned pixels from it; here the tower reads the whole image and its tokens are pruned, so answers have
    another cause and the cost is that of a method behind the tower.
    Count: the published rule keeps every token whose error (``prediction_errors``) exceeds ``tolerance``. Where K is
    that number, the choice is the rule's; a smaller K leaves out the smallest errors, a larger one adds predictable
    tokens, largest error and then lower index first. The published default for a tolerance above 0 is anchored: it
    compares with the predicted value instead of the neighbour's own, so that errors do not add up along a row; here
    neighbours' own pixels are compared, which is the same at 0.
    Degenerate inputs: an image of one colour has no error but the first token's, and keeps the first K tokens.

    Parameters
    ----------
    tolerance: the largest difference of normalised pixel values at which two tokens count as equal; 0 as published for
        lossless pruning. A file with compression noise hardly has equal tokens.
    """

    tolerance: float = 0.0

    name: ClassVar[str] = "pixelprune"
    parity: ClassVar[Parity] = "official-algorithm"
    needs: ClassVar[frozenset[str]] = frozenset({"image.pixels"})
    ranges: ClassVar[Ranges] = {"tolerance": (0.0, 1e6)}

    def select(self, view: TokenView, k: int) -> Selection:
        return Selection(top(prediction_errors(view.signals["image.pixels"], view.layout, self.tolerance), k))
