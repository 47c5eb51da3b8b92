"""Recycling: part of the visual tokens that a cut rejects goes on as centroids of density-peak clusters."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import Tensor

from sightline.core.selection import LayerState, Selection
from sightline.selectors.scores import rank


def recycled_count(n: int, kept: int) -> int:
    """How many of the n - kept rejected tokens are recycled."""
    return int(0.3 * (n - kept)) + 1


def cluster_count(n: int, kept: int) -> int:
    """How many centroids the recycled tokens become."""
    return recycled_count(n, kept) // 10 + 1


def density_peaks(points: Tensor, clusters: int, noise: Tensor) -> tuple[Tensor, Tensor]:
    """Density-peak clustering with ``clusters`` centres.

    points (m, D), noise (m,) in [0, 1) -> centres (c,) by descending peak score, assignment (m,) in 0..c-1.
    d_ij = |x_i - x_j| / sqrt(D); rho_i = exp(-mean of the c smallest d_ij^2, itself included) + 1e-6 noise_i;
    delta_i = distance to the nearest denser point, the largest distance of all for the densest; centres maximise
    rho * delta; every other point joins the nearest centre.
    """
    points = points.double()
    gram = points @ points.mT
    square = (gram.diagonal().unsqueeze(0) + gram.diagonal().unsqueeze(1) - 2.0 * gram).clamp_min(0.0)
    distance = square.fill_diagonal_(0.0).sqrt() / math.sqrt(points.shape[-1])
    nearest = distance.topk(clusters, dim=-1, largest=False).values
    density = (-nearest.square().mean(dim=-1)).exp() + 1e-6 * noise.to(points)
    denser = density.unsqueeze(0) > density.unsqueeze(1)
    isolation = torch.where(denser, distance, distance.max()).amin(dim=-1)
    centres = rank(isolation * density)[:clusters]
    assignment = distance.index_select(1, centres).argmin(dim=-1)
    assignment[centres] = torch.arange(clusters, device=points.device)
    return centres, assignment


def keep_and_recycle(
    score: Tensor, hidden: Tensor, kept: int, clusters: int, noise: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Splits n tokens into kept, recycled and deleted ones and writes the merge down as a matrix.

    score (n,), hidden (n, D), clusters >= 1, noise (m,) with m the number recycled -> kept (s,) ascending, recycled
    (m,) by descending score, centres (c,) in peak order and mix (s + c, n) float32: a one per kept token, 1 / (size +
    1e-6) over each cluster.
    """
    by_score = rank(score)
    stay, recycled = by_score[:kept].sort().values, by_score[kept : kept + noise.shape[0]]
    mix = hidden.new_zeros(kept + clusters, score.shape[0], dtype=torch.float32)
    mix[torch.arange(kept, device=score.device), stay] = 1.0
    centres, assignment = density_peaks(hidden.index_select(0, recycled), clusters, noise)
    mix[kept + assignment, recycled] = 1.0
    mix[kept:] /= mix[kept:].sum(dim=-1, keepdim=True) + 1e-6
    return stay, recycled, recycled[centres], mix


def drawn_noise(count: int, key: str) -> Tensor:
    """(count,) in [0, 1), drawn on the CPU from a key."""
    digest = hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest()
    return torch.rand(count, generator=torch.Generator().manual_seed(int(digest[:15], 16)))


def cut_and_recycled(state: LayerState, score: Tensor, kept: int, clusters: int, key: str) -> Selection:
    """The ``kept`` highest scores (n,) as they are and ``clusters`` centroids of the best rejected; a centroid's anchor
    is the token at the centre of its cluster. Density noise is drawn from ``key``."""
    hidden = state.hidden.index_select(0, state.image.to(state.hidden.device))
    noise = drawn_noise(recycled_count(len(score), kept), key)
    stay, _, centres, mix = keep_and_recycle(score, hidden, kept, clusters, noise)
    return Selection(anchors=torch.cat((stay, centres)), mix=mix)
