"""IVC-Prune: keep the positions that rotary embeddings measure from, and the foreground that the question asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import LayerSelector, LayerState, Parity, Ranges, Selection
from sightline.selectors import SELECTORS
from sightline.selectors.scores import order, rank

SEEDS = 0.01
"""Share of the visual tokens that the question's words are completed with."""
GAP = 2
"""Text tokens behind the image that are not counted among the question's words: its end mark and a line break."""


def likeness(values: Tensor, rows: Tensor) -> Tensor:
    """How much each of some positions resembles every position, by value vectors, which carry no position.

    values (Hkv, L, d), rows (R,) int64 -> (R, L) float32: head mean of softmax_j(<v_r, v_j> / sqrt(d)).
    """
    values = values.float()
    products: Tensor = values.index_select(1, rows) @ values.mT / values.shape[-1] ** 0.5
    return products.softmax(dim=-1).mean(dim=0)


def foreground(values: Tensor, image: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    """Seeds (s,) among the n visual tokens, and how much seeds and words together resemble each of them (n,).

    Seeds are the visual tokens that the words resemble most. Both steps take the mean over their rows.
    """
    asked = likeness(values, words)
    seeds = rank(asked.mean(dim=0)[image])[: max(1, round(SEEDS * len(image)))]
    together = torch.cat([likeness(values, image[seeds]), asked])
    return seeds, together.mean(dim=0)[image]


def coordinates(rotary: Tensor, image: Tensor, each: int) -> Tensor:
    """(n,) bool: the ``each`` visual tokens whose rotation is nearest to none, and as many nearest to a quarter turn.

    rotary (2, L, d) cosines and sines. A rotation by 0 in every plane has mean cosine 1, one by 90 degrees mean sine 1.
    """
    means = rotary.index_select(1, image).float().mean(dim=-1)
    chosen = torch.zeros(len(image), dtype=torch.bool, device=image.device)
    chosen[rank(means)[:, :each].flatten()] = True
    return chosen


@SELECTORS.register("ivcprune")
@dataclass(frozen=True)
class IVCPrune(LayerSelector):
    """Keeps the tokens whose positions serve as coordinates for the others, then what the question's words resemble.

    Reference: Sun et al., "IVC-Prune: Revealing the Implicit Visual Coordinates in LVLMs for Vision Token Pruning"
    (ICLR 2026).

    Coordinates: of the visual tokens, those with the largest mean cosine of their rotary angles and those with the
    largest mean sine, half of the share ``coordinates`` of K each; they depend on positions alone. Foreground: likeness
    of value vectors (``likeness``) to the words behind the image, the first two left out, gives a few seeds, 1 % of the
    tokens; seeds come next, then tokens by mean likeness to seeds and words. Deletion, ties to the lower index. Needs
    ``lm.value`` and ``lm.rotary``. Published for LLaVA are 5 % and 5 % of N beside 20 % of foreground, which makes
    ``coordinates`` 1 / 3; for Qwen2.5-VL 10 % and 10 % of 50 %, which is ``coordinates=0.4``.
    Schedule: one cut once the share ``depth`` of the layers has run. Half is published for LLaVA-1.5-7B and
    InternVL2.5-8B, 16 of 32 layers. The public configurations of other models have 16 of 28 for Qwen2.5-VL-7B
    (``depth=0.57``), 22 of 36 for Qwen2.5-VL-3B (0.61), 2 of 28 for Qwen2-VL-7B (0.07) and 17 of 27 for
    DeepSeek-VL2-small (0.63); a method is not told which model it runs on, so these are set by hand.
    Parity: official-algorithm. Equal to the public code for LLaVA at the K that its shares come to; that code keeps the
    union of its shares, so its K varies with the image. It also takes the tokens out of the layers that have already
    run, which saves their cache; here those layers keep what they have seen. Positions stay what they were under the
    position policy ``preserve``, as the method wants it. Three-axis positions are read through the angles that the
    model makes of them; the public code for Qwen averages the angles of all three axes.
    Degenerate input: with less than three text tokens behind the image the last one asks; equal scores go to the lower
    index.
    """

    name: ClassVar[str] = "ivcprune"
    parity: ClassVar[Parity] = "official-algorithm"
    needs: ClassVar[frozenset[str]] = frozenset({"lm.value", "lm.rotary"})
    ranges: ClassVar[Ranges] = {"coordinates": (0.0, 1.0), "depth": (0.0, 1.0)}

    coordinates: float = 1 / 3
    """Share of K that is kept for its position."""
    depth: float = 0.5
    """Share of the layers that see every token."""

    def schedule(self, n: int, k: int, layers: int) -> dict[int, int]:
        return {max(0, min(round(self.depth * layers) - 1, layers - 2)): k}

    def cut(self, state: LayerState, k: int) -> Selection:
        values, rotary = state.signals["lm.value"], state.signals["lm.rotary"]
        image = state.image.to(values.device)
        length, behind = values.shape[1], int(state.image[-1]) + 1
        words = torch.arange(min(behind + GAP, length - 1), length, device=values.device)
        seeds, score = foreground(values, image, words)
        placed = coordinates(rotary, image, round(k * self.coordinates / 2))
        seeded = torch.zeros_like(placed)
        seeded[seeds] = True
        ranked = order((~placed).float(), (~seeded).float(), -score)
        return Selection(anchors=ranked[:k].sort().values)
