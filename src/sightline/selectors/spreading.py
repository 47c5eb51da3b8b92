"""Three ways to continue a selection over the image plane: around sources, between two boxes, far from everything."""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.selectors.scores import centres, order, overlap_area, rank, without

CORRIDOR_MARGIN = 0.04
"""By how much the hull of two boxes is grown on each side to make the corridor between them."""


def ring(scores: Tensor, cells: Tensor, chosen: Tensor, count: int) -> Tensor:
    """Up to ``count`` free tokens by (squared distance to the nearest source, -score, index).

    Sources are the tokens with a positive score if some but not all have one, else as many of the best as are
    chosen. No token qualifies when no score is positive.
    """
    n = scores.shape[0]
    if count <= 0 or float(scores.max()) <= 0.0:
        return chosen.new_empty(0)
    source = scores > 0.0
    if bool(source.all()):
        source = torch.zeros_like(source)
        source[rank(scores)[: max(1, chosen.shape[0] or count)]] = True
    distance = scores.new_zeros(n)
    distance[~source] = nearest(cells[~source], cells[source])
    candidates = without(torch.arange(n), chosen)
    return candidates[order(distance[candidates], -scores[candidates])[:count]]


def nearest(cells: Tensor, sources: Tensor, block: int = 512) -> Tensor:
    """(N,) squared distance of each cell's centre to the nearest of the source centres, block by block of sources."""
    x, y = centres(cells)
    best = torch.full_like(x, torch.inf)
    for part in torch.split(sources, block):
        across, down = x[:, None] - centres(part)[0], y[:, None] - centres(part)[1]
        best = torch.minimum(best, (across * across + down * down).amin(dim=-1))
    return best


def corridor(scores: Tensor, cells: Tensor, boxes: Tensor, chosen: Tensor, count: int) -> Tensor:
    """Up to ``count`` free tokens of the corridor between the first two boxes; none if there are fewer boxes.

    The corridor is the hull of the two boxes, grown and clipped to the image. Key, ascending: not overlapping it,
    squared distance of the centre to it, squared distance to its centre, -score, index.
    """
    if count <= 0 or boxes.shape[0] < 2:
        return chosen.new_empty(0)
    hull = torch.cat([boxes[:2, :2].amin(dim=0) - CORRIDOR_MARGIN, boxes[:2, 2:].amax(dim=0) + CORRIDOR_MARGIN])
    hull = hull.clamp(0.0, 1.0)
    candidates = without(torch.arange(scores.shape[0]), chosen)
    near = cells[candidates]
    x, y = centres(near)
    outside_x = torch.maximum(hull[0] - x, x - hull[2]).clamp_min(0.0)
    outside_y = torch.maximum(hull[1] - y, y - hull[3]).clamp_min(0.0)
    across, down = x - centres(hull)[0], y - centres(hull)[1]
    ranked = order(
        (overlap_area(near, hull[None])[0] <= 0.0).double(),
        outside_x * outside_x + outside_y * outside_y,
        across * across + down * down,
        -scores[candidates],
    )
    return candidates[ranked[:count]]


def farthest(cells: Tensor, chosen: Tensor, count: int) -> Tensor:
    """(count,) free tokens, each the farthest from all chosen before it (centre distance, lower index on ties)."""
    x, y = centres(cells)
    gap = nearest(cells, cells[chosen])
    gap[chosen] = -1.0
    picks = torch.empty(count, dtype=torch.long)
    for step in range(count):
        pick = int(gap.argmax())
        picks[step] = pick
        across, down = x - x[pick], y - y[pick]
        torch.minimum(gap, across * across + down * down, out=gap)
        gap[pick] = -1.0
    return picks
