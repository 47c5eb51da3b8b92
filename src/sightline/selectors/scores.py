"""Scores that selectors rank visual tokens by, and the one ordering rule: ties go to the lower index.

Geometric scores are float64 throughout: boxes and cells share edges, and whether two overlap fractions are equal or
differ in the last bit decides which token is kept.
"""

from __future__ import annotations

import hashlib
import random
import re
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from typing import ClassVar, Literal

import torch
from torch import Tensor

from sightline.core.selection import BatchSelector, Parity, QuerySpan, Ranges, Selection, TokenView
from sightline.device.work import on_device

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
    if tokens.dim() == 2 and kernels_run(tokens, tokens.shape[0]) and _alignment_fits(query, top):
        return _blend(_launch_alignment(tokens, query, top, NORM_FLOOR), weight)
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


# Kernels in Triton's language, where a GPU runs them: one pass over the tokens compares every one with the query.

MOST_TOKENS = 8192
"""Each program looks at one number per token at once; beyond this they no longer fit its registers."""
MOST_WORDS = 128
FEW_WORDS = 8
"""Up to this many a matrix product, which wants sixteen tokens a program, would leave most of the GPU idle."""


@cache
def _triton_for_cuda() -> bool:
    return torch.version.cuda is not None and find_spec("triton") is not None


def kernels_run(tensor: Tensor, n: int) -> bool:
    """Whether a kernel may run on this tensor's device for n tokens."""
    return tensor.is_cuda and n <= MOST_TOKENS and _triton_for_cuda()


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def _alignment_fits(query: Tensor, top: int) -> bool:
    """Whether the kernel covers this case: no more words than fit a program, and the best one or two of them."""
    return query.dim() == 2 and 1 <= query.shape[0] <= MOST_WORDS and top in (1, 2)


def _launch_alignment(tokens: Tensor, query: Tensor, top: int, floor: float) -> Tensor:
    """(2, N) float32: the mean of the ``top`` largest cosines with the query rows, and the token lengths.

    tokens (N, D), query (T, D) on one device; a length below ``floor`` counts as that.
    """
    from sightline.selectors.kernels import greedy_programs as kernel

    n, depth = tokens.shape
    both = torch.empty(2, n, dtype=torch.float32, device=tokens.device)
    dotted = query.shape[0] > FEW_WORDS
    block = 16 if dotted else 4
    kernel.alignment[(-(-n // block),)](
        tokens.contiguous(),
        query.contiguous(),
        both,
        n,
        query.shape[0],
        depth,
        floor,
        pair=min(top, query.shape[0]),
        dotted=dotted,
        block=block,
        words=power_of_two(query.shape[0]) if dotted else FEW_WORDS,
        chunk=64 if dotted else 256,
        num_warps=4,
    )
    return both


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


# The base of every selector that ranks tokens by a score: what the score is and what is done with it are apart.

ScoreSource = Literal["target", "prompt", "question", "focus", "overlap"]
TARGET_SCORE_MS = 23.0
"""The part of ``official_ms`` that scoring takes, before any rule."""


def on_cpu(view: TokenView) -> TokenView:
    """The view with its few numbers per token on the CPU in float64, where rules order them alike for every device."""
    return replace(view, cells=view.cells.cpu().double(), boxes=view.boxes.cpu().double())


@dataclass(frozen=True)
class Scored(BatchSelector):
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


def half_way(layers: int, depth: float) -> int:
    """The layer after which a cut falls once ``depth`` of the layers have run; never behind the last but one."""
    return max(0, min(round(layers * depth) - 1, layers - 2))
