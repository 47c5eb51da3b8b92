"""ApET, stage 2: the same compression once more, on hidden states half-way through the language model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sightline.core.selection import LayerSelector, LayerState, Parity, Ranges, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.apet import compressed, farthest_from_mean, farthest_points
from sightline.selectors.greedy import gram
from sightline.selectors.vscan_inside import half_way


@SELECTORS.register("apet_inside")
@dataclass(frozen=True)
class ApETInside(LayerSelector):
    """Half-way through, keeps a small basis of hidden states and what it approximates worst; no attention is read.

    Reference: Ma et al., "ApET: Approximation-Error Guided Token Compression for Efficient VLMs" (CVPR 2026), the cut
    in the language model; the stage before it is ``apet``.

    Acts: **merges**, as ``apet`` does (``compressed``), the visual tokens' hidden states behind a layer.
    Schedule: K tokens continue once half of the layers have run, 16 of 32 as published for LLaVA-1.5; in a shallow
    model the cut moves up to the last layer but one.
    Parity: official-algorithm. Equal to the public code, tokens and merge, given the first basis token, which that code
    draws and ``apet`` takes farthest from the mean. Basis tokens stand at their own places, there at those of the
    tokens that they push out; positions are preserved, there renumbered.
    Degenerate inputs: equal errors and similarities go to the lower index; a zero vector has similarity 0.
    """

    name: ClassVar[str] = "apet_inside"
    parity: ClassVar[Parity] = "official-algorithm"
    merges: ClassVar[bool] = True
    ranges: ClassVar[Ranges] = {"basis": (1, 100_000), "depth": (0.0, 1.0)}

    basis: int = 10
    """Number of basis tokens."""
    depth: float = 0.5
    """Part of the layers that see every token."""

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {half_way(layers, self.depth): k}

    def cut(self, state: LayerState, k: int) -> Selection:
        hidden = state.hidden.index_select(0, state.image.to(state.hidden.device))
        products = gram(hidden.double().unsqueeze(0))[0]  # squares cancel in errors, hence float64
        basis = farthest_points(products, farthest_from_mean(products), min(self.basis, len(hidden)))
        return Selection(*compressed(products, basis, k))
