"""Scores that selectors rank visual tokens by, and the one ordering rule: ties go to the lower index.

Geometric scores are float64 throughout: boxes and cells share edges, and whether two overlap fractions are equal or
differ in the last bit decides which token is kept.
"""

from __future__ import annotations

import re

import torch
from torch import Tensor

from sightline.selectors.kernels import usable

NORM_FLOOR = 1e-12
"""Vectors shorter than this count as zero; their cosine with anything is 0."""
HALF_DIAGONAL = 0.70710678118
"""Distance from the image centre to a corner, to the eleven digits the published scores were made with."""


def order(*keys: Tensor) -> Tensor:
    """Indices sorted ascending by the first key, then the second, ..., then the index. Keys are (..., N)."""
    permutation = torch.argsort(keys[-1], dim=-1, stable=True)
    for key in reversed(keys[:-1]):
        permutation = permutation.gather(-1, torch.argsort(key.gather(-1, permutation), dim=-1, stable=True))
    return permutation


def rank(scores: Tensor) -> Tensor:
    """(..., N) indices from the highest score to the lowest, ties to the lower index."""
    return torch.argsort(scores, dim=-1, descending=True, stable=True)


def top(scores: Tensor, k: int) -> Tensor:
    """(..., k) ascending indices of the k highest scores, ties to the lower index."""
    return rank(scores)[..., :k].sort(dim=-1).values


def without(ranked: Tensor, taken: Tensor) -> Tensor:
    """The order ``ranked`` (a permutation of 0..N-1) with the taken indices left out."""
    free = torch.ones_like(ranked, dtype=torch.bool)
    free[taken] = False
    return ranked[free[ranked]]


def minmax(x: Tensor, tolerance: float) -> Tensor:
    """(x - min) / (max - min) over the last dimension; 0 where the range is not larger than ``tolerance``."""
    low, high = x.amin(dim=-1, keepdim=True), x.amax(dim=-1, keepdim=True)
    spread = high - low
    flat = spread <= tolerance
    return torch.where(flat, 0.0, (x - low) / torch.where(flat, 1.0, spread))


def relevance(tokens: Tensor, query: Tensor, weight: float = 0.85, top: int = 2) -> Tensor:
    """Query relevance blended with token norm, (..., N) float32 (paper: Target score).

    tokens (..., N, D), query (..., T, D) with T >= 1:
    r_i = mean of the ``top`` largest cos(z_i, q_t) over t;  a = w * minmax(r) + (1 - w) * minmax(|z|).
    """
    if tokens.dim() == 2 and usable(tokens, tokens.shape[0]):
        from sightline.selectors.kernels import relevance as kernel

        if kernel.fits(query, top):
            return _blend(kernel.alignment(tokens, query, top, NORM_FLOOR), weight)
    tokens, query = tokens.float(), query.float()
    norms = torch.linalg.vector_norm(tokens, dim=-1)
    directions = torch.nn.functional.normalize(query, dim=-1, eps=NORM_FLOOR)
    # Dividing the (N, T) products instead of the (N, D) tokens saves a copy of every token.
    cosines = (tokens @ directions.mT) / norms.clamp_min(NORM_FLOOR).unsqueeze(-1)
    nearest = cosines.topk(min(top, cosines.shape[-1]), dim=-1).values.mean(dim=-1)
    return _blend(torch.stack([nearest, norms]), weight)


def _blend(both: Tensor, weight: float) -> Tensor:
    """Alignment and norm (2, ..., N) as one score (..., N)."""
    scaled = minmax(both, 1e-8)
    return weight * scaled[0] + (1.0 - weight) * scaled[1]


def uniqueness(tokens: Tensor, layout: tuple[tuple[int, int], ...]) -> Tensor:
    """How unlike its neighbours each token is, (N,) float32: minmax of the mean of 1 - cos over existing 4-neighbours.

    tokens (N, D); ``layout`` lists the row-major (rows, columns) blocks the N tokens consist of. Tokens of different
    blocks (tiles, thumbnail) are never neighbours.
    """
    tokens = tokens.float()
    norms = torch.linalg.vector_norm(tokens, dim=-1).clamp_min(NORM_FLOOR)
    blocks = []
    start = 0
    for rows, columns in layout:
        end = start + rows * columns
        block, norm = tokens[start:end].view(rows, columns, -1), norms[start:end].view(rows, columns)
        start = end
        beside = 1.0 - _products(block[:, 1:], block[:, :-1]) / (norm[:, 1:] * norm[:, :-1])
        below = 1.0 - _products(block[1:], block[:-1]) / (norm[1:] * norm[:-1])
        total, count = beside.new_zeros(rows, columns), beside.new_zeros(rows, columns)
        for part, distance in (
            ((slice(None), slice(1, None)), beside),
            ((slice(None), slice(None, -1)), beside),
            ((slice(1, None), slice(None)), below),
            ((slice(None, -1), slice(None)), below),
        ):
            total[part] += distance
            count[part] += 1.0
        blocks.append((total / count.clamp_min(1.0)).flatten())
    return minmax(torch.cat(blocks), 1e-8)


def _products(a: Tensor, b: Tensor) -> Tensor:
    """(R, C) inner products of (R, C, D) vectors. On a CPU row by row: a row of products stays in its cache."""
    if a.device.type != "cpu" or a.shape[0] == 0:
        return (a * b).sum(dim=-1)
    return torch.stack([(row * other).sum(dim=-1) for row, other in zip(a, b, strict=True)])


def centres(boxes: Tensor) -> tuple[Tensor, Tensor]:
    """x and y of the middle of each box, (...,) each."""
    return (boxes[..., 0] + boxes[..., 2]) / 2.0, (boxes[..., 1] + boxes[..., 3]) / 2.0


def overlap_area(cells: Tensor, boxes: Tensor) -> Tensor:
    """(M, N) area shared by each box and each cell; boxes that only touch share nothing."""
    corner = torch.maximum(boxes[:, None, :2], cells[None, :, :2])
    opposite = torch.minimum(boxes[:, None, 2:], cells[None, :, 2:])
    return (opposite - corner).clamp_min(0.0).prod(dim=-1)


def overlap_fraction(cells: Tensor, boxes: Tensor) -> Tensor:
    """(M, N) share of each cell's area that lies in each box."""
    area = (cells[:, 2:] - cells[:, :2]).clamp_min(0.0).prod(dim=-1)
    return torch.where(area > 0.0, overlap_area(cells, boxes) / torch.where(area > 0.0, area, 1.0), 0.0)


def centre_prior(cells: Tensor) -> Tensor:
    """(N,) 1 at the image centre, falling linearly to 0 at the corners."""
    x, y = centres(cells)
    distance = ((x - 0.5) * (x - 0.5) + (y - 0.5) * (y - 0.5)).sqrt()
    return 1.0 - (distance / HALF_DIAGONAL).clamp_max(1.0)


def overlap_score(cells: Tensor, boxes: Tensor) -> Tensor:
    """(N,) oracle score: the cell's overlap fractions summed over boxes; the centre prior when nothing overlaps."""
    total = cells.new_zeros(cells.shape[0])
    for fraction in overlap_fraction(cells, boxes):  # box by box: floating-point addition in the order of the boxes
        total = total + fraction
    return total if bool((total > 0.0).any()) else centre_prior(cells)


# The words of an open question that say what to look for.

MOST_TERMS = 8
WORD = re.compile(r"[^\W_]+(?:[-'][^\W_]+)*")
STOP_WORDS = frozenset(
    """a an and answer are associated at be been being called can could did displayed do document does for from given
    had has have he her hers him his how image in is it may me mentioned might mine my of on or our ours photo picture
    please read reads say says she should shown single that the their theirs them these they this those to using was
    were what when where which who why with word words would written you your yours""".split()  # noqa: SIM905 - a paragraph of words reads better than ninety quoted strings
)


def focus_terms(question: str) -> list[str]:
    """Up to eight words in their own spelling and order; the stripped question itself if no word qualifies.

    Words are runs of letters and digits, joined by inner hyphens or apostrophes. Stop words, repetitions (both without
    regard to case) and single characters other than digits are left out.
    """
    terms: dict[str, str] = {}
    for word in WORD.findall(question):
        key = word.casefold()
        if key not in STOP_WORDS and (len(word) > 1 or word.isdigit()):
            terms.setdefault(key, word)
    return list(terms.values())[:MOST_TERMS] or [question.strip()]
