"""PruneSID: group patches by principal directions, then keep the attended ones of each group that differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import Parity, Ranges, Selection, Selector, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.fastervlm import CLASS_ATTENTION
from sightline.selectors.greedy import cosines
from sightline.selectors.scores import order, rank

FEATURES = "vision.hidden@-2"
PER_GROUP = 4
"""Kept tokens for which there is one group."""
LENIENCE = 32
"""Kept tokens at which the similarity that counts as redundant is the image's mean."""


def principal_groups(features: Tensor, groups: int) -> Tensor:
    """(N,) int64 which of the leading directions, over tokens, each token has the largest part in.

    features (N, C). Of X = sigmoid(features)^T, (C, N), centred over its C rows, V holds the right singular vectors of
    the ``groups`` largest singular values; group_i = argmax_g |V_ig|.
    """
    squashed = torch.sigmoid(features.double())
    centred = squashed - squashed.mean(dim=1, keepdim=True)
    directions: Tensor = torch.linalg.eigh(centred @ centred.mT).eigenvectors
    return directions.flip(1)[:, :groups].abs().argmax(dim=1)


def surviving(similarity: Tensor, score: Tensor, group: Tensor, threshold: Tensor) -> Tensor:
    """(N,) bool: what non-maximum suppression within groups leaves.

    From the highest score down, a token that is left suppresses those of its group that are more similar to it than
    ``threshold`` ().
    """
    ranked = rank(score)
    same = group[ranked].unsqueeze(1) == group[ranked]
    suppresses = (same & (similarity[ranked][:, ranked] > threshold)).triu(1)
    left = torch.ones_like(ranked, dtype=torch.bool)
    for place in range(len(ranked)):
        left = left & ~(suppresses[place] & left[place])
    return torch.empty_like(left).scatter_(0, ranked, left)


def members(group: Tensor, counted: Tensor, groups: int) -> Tensor:
    """(G,) float64: how many tokens of each group are ``counted`` (N,); unlike bincount, never waits for the device."""
    return torch.zeros(groups, dtype=torch.float64, device=group.device).index_add_(0, group, counted.double())


def quotas(group: Tensor, left: Tensor, groups: int, k: int) -> Tensor:
    """(G,) tokens that each group may keep: one if it has any, and its part of the rest by how many survived in it.

    Parts are differences of a rounded running sum, so they add up.
    """
    survived = members(group, left, groups)
    least = (survived > 0).double()  # the first of a group always survives
    upto = ((k - least.sum()).clamp_min(0.0) * survived.cumsum(0) / survived.sum()).round()
    return least + upto.diff(prepend=upto.new_zeros(1))


@SELECTORS.register("prunesid")
@dataclass(frozen=True)
class PruneSID(Selector):
    """Splits the budget over groups of meaning, and within each keeps attended patches that are not alike.

    Reference: Fang et al., "Prune Redundancy, Preserve Essence: Vision Token Compression in VLMs via Synergistic
    Importance-Diversity" (ICLR 2026).
    Needs: class-token attention of the penultimate vision layer, summed over heads (importance), and its hidden states.
    Parity: paper-algorithm, no parity data. Principal directions are exact where the public code draws a sketch, and
    its own draws differ as much: on clustered features, N = 576, two of them have a Jaccard index of 0.40 to 0.50, one
    of them and Sightline 0.38 to 0.53. The class token is not one of the K; the budget does not follow an image's
    complexity, as the paper also offers; a group is limited by its size alone, in the public code also by
    5 ceil(K / 64).

    K / 4 groups (``principal_groups``). Within a group the most attended patch suppresses those more similar to it than
    ``lenience`` * K / 32 times the mean cosine of all pairs, and so on down. Quotas follow the number of survivors
    (``quotas``); a group is filled with survivors and then with suppressed patches, both by attention.
    Acts: deletes before the language model.
    Degenerate inputs: places that small groups cannot fill go to the groups with most survivors; equal values go to the
    lower index; NaN counts as 0.

    Parameters
    ----------
    lenience: factor on the similarity from which a patch is redundant; 1 as published.
    """

    lenience: float = 1.0

    name: ClassVar[str] = "prunesid"
    parity: ClassVar[Parity] = "paper-algorithm"
    needs: ClassVar[frozenset[str]] = frozenset({CLASS_ATTENTION, FEATURES})
    ranges: ClassVar[Ranges] = {"lenience": (0.0, 1e6)}

    def select(self, view: TokenView, k: int) -> Selection:
        features = view.signals[FEATURES].double().nan_to_num()
        score = view.signals[CLASS_ATTENTION].double().nan_to_num().sum(dim=0)
        n, groups = len(features), max(1, k // PER_GROUP)
        group = principal_groups(features, groups)
        similarity = cosines(features.unsqueeze(0))[0]
        mean = similarity.triu(1).sum() / max(1, n * (n - 1) // 2)
        left = surviving(similarity, score, group, mean * (self.lenience * k / LENIENCE))
        within = order(group, (~left).double(), -score)
        size = members(group, torch.ones_like(left), groups)
        first = size.cumsum(0) - size
        place = torch.empty_like(within).scatter_(0, within, torch.arange(n, device=within.device)) - first[group]
        beyond = (place >= quotas(group, left, groups, k)[group]).double()
        survivors = members(group, left, groups)[group]
        return Selection(order(beyond, -survivors, group, place)[:k].sort().values)
