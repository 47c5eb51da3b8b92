"""The base of every selector that ranks tokens by a score: what the score is and what is done with it are apart."""

from __future__ import annotations

import hashlib
import random
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.core.selection import Parity, QuerySpan, Ranges, Selection, Selector, TokenView
from sightline.device.transfer import on_device
from sightline.selectors.scores import centre_prior, centres, order, overlap_fraction, overlap_score, rank, relevance

ScoreSource = Literal["target", "prompt", "question", "focus", "overlap"]
TARGET_SCORE_MS = 23.0
"""The part of ``official_ms`` that scoring takes, before any rule."""


def on_cpu(view: TokenView) -> TokenView:
    """The view with its few numbers per token on the CPU in float64, where rules order them alike for every device."""
    return replace(view, cells=view.cells.cpu().double(), boxes=view.boxes.cpu().double())


@dataclass(frozen=True)
class Scored(Selector):
    """A rule over one score per token.

    Parameters
    ----------
    score: which part of the prompt tokens are compared with, by input embeddings: ``target`` the queried string,
        ``question``, ``focus`` the question's words that say what to look for, or the whole ``prompt``; ``overlap`` is
        an oracle that looks at the selector-visible boxes. Without query tokens, or without any overlap, the score is
        the centre prior.
    weight, top: blend of relevance and token norm, and how many query tokens are averaged (see ``scores.relevance``).
    """

    score: ScoreSource = "target"
    weight: float = 0.85
    top: int = 2

    ranges: ClassVar[Ranges] = {"top": (1, 100_000)}
    parity: ClassVar[Parity] = "exact-index"
    plain_top: ClassVar[bool] = False
    """Whether ``choose`` is nothing but the K highest scores, ties to the lower index: stored scores then tell what it
    would keep at any budget."""
    rule_on_device: ClassVar[bool] = False
    """Whether ``choose`` runs where the scores are; else they are brought to the CPU, for all views in one copy."""

    @property
    def query(self) -> QuerySpan:
        return "none" if self.score == "overlap" else self.score

    @property
    def reads_boxes(self) -> bool:
        return self.score == "overlap"

    def scores(self, view: TokenView) -> Tensor:
        """(N,) float64, on the device of the tokens if it compares them with the query, else on the CPU."""
        if self.score == "overlap":
            return overlap_score(view.cells, view.boxes)
        if view.query.shape[0] == 0:
            return centre_prior(view.cells)
        return relevance(view.tokens, view.query, self.weight, self.top).double()

    def select(self, view: TokenView, k: int) -> Selection:
        return self.select_many([view], k)[0]

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        """For views with equally many tokens."""
        n = views[0].cells.shape[0]
        if k >= n:
            return [Selection(torch.arange(n)) for _ in views]
        views = [on_cpu(view) for view in views]
        scores = [self.scores(view) for view in views]
        if not self.rule_on_device and any(score.is_cuda for score in scores):
            scores = list(torch.stack([on_device(score, views[0].tokens.device) for score in scores]).cpu())
        return [Selection(self.choose(score, view, k).sort().values) for score, view in zip(scores, views, strict=True)]

    @abstractmethod
    def choose(self, scores: Tensor, view: TokenView, k: int) -> Tensor:
        """The rule: (k,) distinct indices, k < N, in any order, from (N,) scores and cells and boxes on the CPU."""


# Budget shares and the two ways of reserving tokens for boxes, shared by the rules that protect evidence.


def share(fraction: float, k: int, least: int = 0) -> int:
    """round(fraction * k), half to even, kept within least..k."""
    return max(least, min(k, round(fraction * k)))


def fill(reserved: Tensor, scores: Tensor, k: int) -> Tensor:
    """(k,) the reserved indices, of which there are at most k, completed by the highest scores among the others."""
    ranked = rank(scores)
    free = torch.ones_like(ranked).index_fill_(0, reserved, 0)
    # A stable sort by "is free" instead of leaving the reserved out: as many results as there are tokens, whatever
    # the values, so that a GPU need not be asked how many are left.
    return ranked[torch.argsort(free[ranked], stable=True)][:k]


def box_overlaps(cells: Tensor, boxes: Tensor, scores: Tensor, limit: int) -> Tensor:
    """Up to ``limit`` tokens that overlap boxes (M, 4), one per box in turn.

    A box offers its overlapping tokens by (overlap fraction, score) descending and passes over those already taken.
    """
    fraction = overlap_fraction(cells, boxes)
    ranked = order(-fraction, (-scores).expand_as(fraction))
    counts = (fraction > 0.0).sum(dim=-1).tolist()
    queues = [iter(row[:count].tolist()) for row, count in zip(ranked, counts, strict=True)]
    taken: dict[int, None] = {}
    while queues:
        waiting = []
        for queue in queues:
            if len(taken) >= limit:
                return torch.tensor(list(taken), dtype=torch.long)
            token = next((token for token in queue if token not in taken), None)
            if token is not None:
                taken[token] = None
                waiting.append(queue)
        queues = waiting
    return torch.tensor(list(taken), dtype=torch.long)


def box_centres(cells: Tensor, boxes: Tensor, scores: Tensor, limit: int) -> Tensor:
    """For each of the first ``limit`` boxes in order, the free token that is closest to its centre.

    Key, ascending: centre outside the closed box, squared distance of the centres, -overlap fraction, -score, index.
    """
    boxes = boxes[:limit]
    x, y = centres(cells)
    across, down = x - centres(boxes)[0][:, None], y - centres(boxes)[1][:, None]
    outside = ~centre_inside(cells, boxes)
    keys = (outside.double(), across * across + down * down, -overlap_fraction(cells, boxes))
    ranked = order(*keys, (-scores).expand_as(across))[:, : boxes.shape[0]]  # at most M - 1 of the best are taken
    taken: dict[int, None] = {}
    for candidates in ranked.tolist():
        token = next((token for token in candidates if token not in taken), None)
        if token is not None:
            taken[token] = None
    return torch.tensor(list(taken), dtype=torch.long)


def centre_inside(cells: Tensor, boxes: Tensor) -> Tensor:
    """(M, N) whether a cell's centre lies in a box, borders included."""
    x, y = centres(cells)
    left, upper, right, lower = (edge[:, None] for edge in boxes.unbind(dim=-1))
    return (left <= x) & (x <= right) & (upper <= y) & (y <= lower)


# Seeded draws: the same on every machine and device, because they never leave the CPU.


def seeded(seed: int, key: str) -> random.Random:
    """A generator seeded with the first 16 hexadecimal digits of sha1("<seed>:<key>").

    The key names the probe, its view, the budget and the selector, so the two probes of one image get different draws.
    """
    digest = hashlib.sha1(f"{seed}:{key}".encode(), usedforsecurity=False).hexdigest()
    return random.Random(int(digest[:16], 16))
