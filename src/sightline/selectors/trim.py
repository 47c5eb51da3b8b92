"""TRIM: keep the patches whose CLIP embedding answers the question, and one mean of all others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import Parity, QuerySpan, Selection, Selector, TokenView
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import at_least_float32
from sightline.selectors.scores import rank

HIDDEN = "vision.hidden@-2"


def unlikeness(patches: Tensor, text: Tensor) -> Tensor:
    """(N,) score_i = -<p_i, t>, not scaled by lengths: patches (N, P), text (P,), both in CLIP's joint space.

    The published score is the softmax of it, which has the same order. The sign is the published one: in that space
    the patches least like the text carry what it asks for.
    """
    return -(at_least_float32(patches) @ at_least_float32(text))


def kept_and_mean(score: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """anchors (K,) and mix (K, N): the K - 1 highest scores as they are, ascending, and the mean of all others.

    The mean stands at the place of the highest score among the others. K = 1 is the mean of everything.
    """
    ranked = rank(score)
    kept, others = ranked[: k - 1].sort().values, ranked[k - 1 :]
    mix = torch.zeros(k, len(score), device=score.device)
    mix[torch.arange(k - 1, device=score.device), kept] = 1.0
    mix[k - 1, others] = 1.0 / len(others)
    return torch.cat([kept, others[:1]]), mix


@SELECTORS.register("trim")
@dataclass(frozen=True)
class TRIM(Selector):
    """Keeps the patches that CLIP relates to the question, and lets one token stand for the rest.

    Reference: Song et al., "Less is More: A Simple yet Effective Token Reduction Method for Efficient Multi-modal LLMs"
    (COLING 2025).
    Needs: CLIP-projected patches, the question in CLIP's joint space (its first 77 tokens), penultimate vision states.
    Parity: official-algorithm. Equal to the public code, tokens and mean, given the count; its other way, as many
    tokens as have outlying scores, is not part of it. The mean stands where the first of its tokens was, there behind
    all others. The authors also train with it; here it is used on any checkpoint.
    Acts: **merges** vision states before projection: K - 1 patches and the mean of the others (``kept_and_mean``).
    Degenerate inputs: equal scores go to the lower index; NaN counts as 0; K = N changes nothing.
    """

    name: ClassVar[str] = "trim"
    query: ClassVar[QuerySpan] = "question"
    parity: ClassVar[Parity] = "official-algorithm"
    needs: ClassVar[frozenset[str]] = frozenset({"clip.image", "clip.text", HIDDEN})
    merges: ClassVar[bool] = True
    merges_vision: ClassVar[bool] = True
    unpublished: ClassVar[str] = "no form of it is published without CLIP"

    def select(self, view: TokenView, k: int) -> Selection:
        score = unlikeness(view.signals["clip.image"], view.signals["clip.text"][0]).nan_to_num()
        return Selection(*kept_and_mean(score, k), merge_at="vision")
