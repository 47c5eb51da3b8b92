"""AnchorPrune: a relevance-ranked anchor, then importance-weighted expansion away from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.core.selection import BatchSelector, Parity, QuerySpan, Ranges, Selection, TokenView, build_form
from sightline.selectors import SELECTORS
from sightline.selectors.greedy import at_least_float32, cosine, cosines, farthest_greedy, stack, text_dissimilarity
from sightline.selectors.scores import rank


def anchor_prefix(
    relevance: Tensor, features: Tensor, k: int, k_min: int, max_ratio: float, tau: float, patience: int
) -> tuple[Tensor, Tensor]:
    """relevance (B, N), features (B, N, D) -> tokens ranked by relevance (B, K_max) and the anchor's length (B,).

    The K_min most relevant tokens are the reference. The anchor grows along the ranking until it has met ``patience``
    tokens whose cosine distance to all of the reference exceeds ``tau``, at most to K_max = floor(max_ratio * K).
    """
    k_min = min(max(1, k_min), k)
    k_max = min(max(k_min, int(max_ratio * k)), k)
    ranked = rank(relevance)[:, :k_max]
    leading = features.gather(1, ranked.unsqueeze(2).expand(-1, -1, features.shape[2]))
    reference, walked = leading[:, :k_min], leading[:, k_min:]
    # One product per image: a batched product may round differently for another batch size.
    nearest = torch.stack([cosine(w, r).amax(dim=1) for w, r in zip(walked, reference, strict=True)])
    novel = (1.0 - nearest > tau).cumsum(dim=1)
    # Positions walked before the one that exhausts the patience, plus that one, if there is one.
    length = k_min + (novel < patience).sum(dim=1) + 1
    return ranked, length.clamp_max(k_max)


def anchorprune_order(
    relevance: Tensor,
    features: Tensor,
    importance: Tensor,
    expansion: Tensor,
    k: int,
    k_min: int,
    max_ratio: float = 0.5,
    tau: float = 0.2,
    patience: int = 3,
) -> tuple[Tensor, Tensor]:
    """(B, k) in pick order and the length (B,) of the anchor, its prefix.

    relevance and importance (B, N); features (B, N, D) measure the anchor's novelty, expansion (B, N, E) the distances
    of the second stage: repeatedly argmax_i max(0, importance_i) * min(1, min_{j picked} (1 - cos_ij)).
    """
    ranked, length = anchor_prefix(relevance, features, k, k_min, max_ratio, tau, patience)
    weight = at_least_float32(importance).clamp_min(0.0)
    return farthest_greedy(cosines(expansion), weight, ranked, length, ceiling=1.0, k=k), length


@dataclass(frozen=True)
class _AnchorPrune(BatchSelector):
    """The parameters that both forms share."""

    k_min: int | None = None
    max_ratio: float = 0.5
    tau: float = 0.2
    patience: int = 3

    query: ClassVar[QuerySpan] = "question"
    parity: ClassVar[Parity] = "exact-index"
    ranges: ClassVar[Ranges] = {"max_ratio": (0.0, 1.0), "patience": (1, inf)}

    def _select(self, relevance: Tensor, features: Tensor, importance: Tensor, expansion: Tensor, k: int) -> Tensor:
        k_min = max(1, round(0.15625 * k)) if self.k_min is None else self.k_min
        order, _ = anchorprune_order(
            relevance, features, importance, expansion, k, k_min, self.max_ratio, self.tau, self.patience
        )
        return order.sort(dim=1).values


@SELECTORS.register("anchorprune")
@dataclass(frozen=True)
class AnchorPrune(_AnchorPrune):
    """Anchors on what the question points at in CLIP's space, then adds salient tokens unlike those kept (CLIP towers).

    Relevance is minus the mean cosine of CLIP patch and CLIP question; importance is the class token's attention.

    Reference: Oh et al., "AnchorPrune" (2026), the form published for LLaVA.
    Needs: CLIP-projected patches, CLIP embeddings of the question, penultimate vision features, class-token attention.
    Parity: exact-index.
    Acts: deletes before the language model.
    Degenerate inputs: tokens without importance and duplicates of kept ones score 0, and of those the lowest unpicked
    indices follow; a zero-norm token is at distance 1 from everything.

    Parameters
    ----------
    k_min: length of the reference; None means round(0.15625 K), the published ratio (5 of 32, 10 of 64, 20 of 128).
    max_ratio: the anchor takes at most this fraction of K.
    tau: a token farther than this cosine distance from the reference is novel.
    patience: the anchor ends at this many novel tokens.
    """

    name: ClassVar[str] = "anchorprune"
    needs: ClassVar[frozenset[str]] = frozenset(
        {"clip.image", "clip.text", "vision.hidden@-2", "vision.cls_attention@-2"}
    )
    official_ms: ClassVar[float] = 43.0

    def other_form(self, blocks: int) -> AnchorPruneQwen:
        return build_form(AnchorPruneQwen, self)

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        signals = [view.signals for view in views]
        kept = self._select(
            # The published rescaling to (0, 1] does not change the ranking, which is all that is used of it.
            stack([text_dissimilarity(s["clip.image"], s["clip.text"]) for s in signals]),
            stack([s["clip.image"] for s in signals]),
            stack([at_least_float32(s["vision.cls_attention@-2"]).mean(dim=0) for s in signals]),
            stack([s["vision.hidden@-2"] for s in signals]),
            k,
        )
        return [Selection(anchors) for anchors in kept]


@SELECTORS.register("anchorprune_qwen")
@dataclass(frozen=True)
class AnchorPruneQwen(_AnchorPrune):
    """Anchors on what the question's embeddings point at, then adds salient tokens unlike those kept (no class token).

    Relevance is the cosine of projected token and question embedding; importance is the attention a token receives.

    Reference: Oh et al., "AnchorPrune" (2026), the form published for Qwen2.5-VL.
    Needs: projected tokens, input embeddings of the question, attention received in the last vision block.
    Parity: exact-index.
    Acts: deletes before the language model.
    Degenerate inputs: as ``anchorprune``; without question tokens all relevance is 0 and the anchor goes by index.

    Parameters
    ----------
    k_min, max_ratio, tau, patience: as ``anchorprune``.
    aggregate: relevance over several question tokens, their ``max`` or their ``mean``.
    """

    aggregate: Literal["max", "mean"] = "max"

    name: ClassVar[str] = "anchorprune_qwen"
    form: ClassVar[str] = "anchorprune_qwen, the form that its authors published for Qwen2.5-VL"
    needs: ClassVar[frozenset[str]] = frozenset({"vision.received@-1"})

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        tokens = stack([view.tokens for view in views])
        importance = stack([view.signals["vision.received@-1"] for view in views])
        kept = self._select(stack([self.relevance(view) for view in views]), tokens, importance, tokens, k)
        return [Selection(anchors) for anchors in kept]

    def relevance(self, view: TokenView) -> Tensor:
        """(N,) best or mean cosine to the question tokens."""
        if view.query.shape[0] == 0:
            return at_least_float32(view.tokens).new_zeros(view.tokens.shape[0])
        alike = cosine(view.tokens, view.query)
        return alike.amax(dim=1) if self.aggregate == "max" else alike.mean(dim=1)
