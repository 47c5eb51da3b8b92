"""Budget shares and the two ways of reserving tokens for boxes, shared by the rules that protect evidence."""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.selectors.scores import centres, order, overlap_fraction, rank


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
