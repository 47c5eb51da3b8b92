"""PruneSID: group patches by principal directions, then keep the attended ones of each group that differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import Parity, Ranges, Selection, Selector, TokenView, build_form
from sightline.selectors import SELECTORS
from sightline.selectors.fastervlm import CLASS_ATTENTION
from sightline.selectors.greedy import cosines
from sightline.selectors.scores import order, rank

FEATURES = "vision.hidden@-2"
PER_GROUP = 4
"""Kept tokens for which there is one group."""
LARGE = 64
"""Kept tokens for which a group may have five more."""
LENIENCE = 32
"""Kept tokens at which the similarity that counts as redundant is the image's mean."""


def principal_groups(features: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """(N,) each token's part in that of the leading directions, over tokens, which it is most part of, and (N,) which.

    features (N, C). Of X = sigmoid(features)^T, (C, N), centred over its C rows, V holds the right singular vectors of
    the ``groups`` largest singular values; part_i = max_g |V_ig|, group_i = argmax_g |V_ig|.
    """
    squashed = torch.sigmoid(features.double())
    centred = squashed - squashed.mean(dim=1, keepdim=True)
    directions: Tensor = torch.linalg.eigh(centred @ centred.mT).eigenvectors
    part, group = directions.flip(1)[:, :groups].abs().max(dim=1)
    return part, group


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


def limits(size: Tensor, survived: Tensor, n: int, asked: int) -> Tensor:
    """(G,) the most that each group may keep: its survivors, at most 5 ceil(asked / 64), and then, while all together
    do not hold as many as are ``asked`` for, one more for every group that has more members."""
    most = torch.minimum(survived, torch.full_like(survived, 5.0 * -(-asked // LARGE)))
    # What an increase by t for every group would make possible, for all t at once.
    steps = torch.arange(n + 1, device=size.device, dtype=size.dtype)
    possible = torch.minimum(most + steps.unsqueeze(1), size)
    enough = (possible.sum(dim=1) >= min(asked, n)).to(torch.int8).argmax()
    return possible[enough]


def quotas(size: Tensor, survived: Tensor, n: int, k: int, asked: int) -> Tensor:
    """(G,) tokens that each group keeps of N, K together: one if it has any, and its part of the rest by its survivors.

    Parts are differences of a rounded running sum, so they add up; what the ``limits`` cut off goes to the groups with
    most survivors, as far as their own allow.
    """
    least = (survived > 0).to(size.dtype)  # the first of a group always survives
    upto = ((k - least.sum()).clamp_min(0.0) * survived.cumsum(0) / survived.sum()).round()
    most = limits(size, survived, n, asked)
    quota = torch.minimum(least + upto.diff(prepend=upto.new_zeros(1)), most)
    ranked = rank(survived)
    room = (most - quota)[ranked]
    lacking = k - quota.sum()
    filled = torch.minimum((lacking - (room.cumsum(0) - room)).clamp_min(0.0), room)
    return quota.index_add(0, ranked, filled)


def kept_of_groups(
    similarity: Tensor, threshold: Tensor, score: Tensor, group: Tensor, groups: int, k: int, asked: int
) -> Tensor:
    """(K,) ascending: each group's ``quotas`` are filled with its survivors, then with suppressed tokens, by score.

    similarity (N, N), score (N,) and group (N,) int64 in 0..``groups`` - 1; ``asked`` is K as the public code counts.
    """
    n = len(score)
    left = surviving(similarity, score, group, threshold)
    size, survived = members(group, torch.ones_like(left), groups), members(group, left, groups)
    within = order(group, (~left).double(), -score)
    first = size.cumsum(0) - size
    place = torch.empty_like(within).scatter_(0, within, torch.arange(n, device=within.device)) - first[group]
    beyond = (place >= quotas(size, survived, n, k, asked)[group]).double()
    return order(beyond, -survived[group], group, place)[:k].sort().values


@SELECTORS.register("prunesid")
@dataclass(frozen=True)
class PruneSID(Selector):
    """Splits the budget over groups of meaning, and within each keeps attended patches that are not alike.

    Reference: Fang et al., "Prune Redundancy, Preserve Essence: Vision Token Compression in VLMs via Synergistic
    Importance-Diversity" (ICLR 2026).
    Needs: class-token attention of the penultimate vision layer, summed over heads (importance), and its hidden states.
    Parity: official-algorithm. Equal to the public code, given the groups. Principal directions are exact where that
    code draws a sketch, and its own draws differ as much: see docs/methods.md. The class token is not one of the K: K
    patches here are what that code keeps beside it when asked for K + 1. The budget does not follow an image's
    complexity, as the paper also offers.

    (K + 1) / 4 groups (``principal_groups``). Within a group the most attended patch suppresses those more similar to
    it than ``lenience`` * (K + 1) / 32 times the mean cosine of all pairs, and so on down. ``quotas`` follow the number
    of survivors; a group is filled with survivors and then with suppressed patches, both by attention.
    Acts: deletes before the language model.
    Degenerate inputs: equal values go to the lower index; NaN counts as 0.

    Parameters
    ----------
    lenience: factor on the similarity from which a patch is redundant; 1 as published.
    """

    lenience: float = 1.0

    name: ClassVar[str] = "prunesid"
    parity: ClassVar[Parity] = "official-algorithm"
    needs: ClassVar[frozenset[str]] = frozenset({CLASS_ATTENTION, FEATURES})
    ranges: ClassVar[Ranges] = {"lenience": (0.0, 1e6)}

    def other_form(self, blocks: int) -> PruneSID:
        return build_form(TokenPruneSID, self)

    def select(self, view: TokenView, k: int) -> Selection:
        features = view.signals[FEATURES].double().nan_to_num()
        score = view.signals[CLASS_ATTENTION].double().nan_to_num().sum(dim=0)
        groups = max(1, (k + 1) // PER_GROUP)
        return Selection(
            attended_kept(features, score, principal_groups(features, groups)[1], groups, k, self.lenience)
        )


def attended_kept(features: Tensor, score: Tensor, group: Tensor, groups: int, k: int, lenience: float) -> Tensor:
    """(K,) of features (N, C): redundant above lenience (K + 1) / 32 times the mean cosine of all pairs."""
    similarity = cosines(features.unsqueeze(0))[0]
    mean = similarity.triu(1).sum() / max(1, len(score) * (len(score) - 1) // 2)
    return kept_of_groups(similarity, mean * (lenience * (k + 1) / LENIENCE), score, group, groups, k, k + 1)


class TokenPruneSID(PruneSID):
    """From projected tokens alone: groups are their principal directions, and what counts is a token's part in its own.

    K / 4 groups, at least four. Redundant is what exceeds max(1, 18 K / N) times sum_{i <= j} cos_ij / N^2, the mean of
    the upper triangle over the whole square as the public code takes it.
    """

    form: ClassVar[str] = (
        "from projected tokens alone, scores from the groups themselves, as the public code for Qwen2-VL"
    )
    needs: ClassVar[frozenset[str]] = frozenset()

    def select(self, view: TokenView, k: int) -> Selection:
        tokens = view.tokens.double().nan_to_num()
        groups = min(max(k // PER_GROUP, PER_GROUP), len(tokens))
        return Selection(token_kept(tokens, *principal_groups(tokens, groups), groups, k, self.lenience))


def token_kept(tokens: Tensor, part: Tensor, group: Tensor, groups: int, k: int, lenience: float) -> Tensor:
    """(K,) of tokens (N, D) by their ``part`` (N,) in the direction of their ``group`` (N,)."""
    n, similarity = len(tokens), cosines(tokens.unsqueeze(0))[0]
    threshold = similarity.triu().sum() / n**2 * (lenience * max(18 * k / n, 1.0))
    return kept_of_groups(similarity, threshold, part, group, groups, k, k)
