"""What the reader is trained on: local objectives for the vision tower, answer objectives for the whole model."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lab.reader import vocabulary
from lab.reader.forward import SeenTokens
from lab.reader.samples import ANSWER, BIGRAM_BUCKETS, CHARACTER_COUNT, ENDING, LETTER, SPELLING
from lab.reader.token_grid import SLOTS, UNITS, token_order
from lab.scenes.compose import CANVAS

RELEVANCE_WEIGHT = 0.85
"""Weight of the cosine part in Target's score; the rest is the norm of the visual token."""
READABLE = 0.5
"""Share of a value's box that must lie in kept cells for its question to be trained on."""


class LocalTargets(NamedTuple):
    """What stands where, per image."""

    slots: Tensor
    """(B, 784 * SLOTS) int64, 0..93, or 94 for no character; units ordered by visual token."""
    bag: Tensor
    """(B, N, 94) bool, the characters of each visual token."""
    bigrams: Tensor
    """(B, N, 1024) bool, hashed pairs of neighbours."""


def local_targets(sample: dict[str, Tensor], side: int) -> LocalTargets:
    """For a form with ``side`` visual tokens per side."""
    slot, bigram = sample["slot"], sample["bigram"]
    batch, device = slot.shape[0], slot.device
    tokens, size, order = side * side, UNITS * SLOTS, _order(side, device)
    within = UNITS // tokens
    # One spare place at the end takes the unused entries of the record.
    unit = order[slot.clamp(min=0) // (CHARACTER_COUNT * SLOTS)]
    character = slot % CHARACTER_COUNT
    place = torch.where(slot < 0, size, unit * SLOTS + slot // CHARACTER_COUNT % SLOTS)
    slots = torch.full((batch, size + 1), CHARACTER_COUNT, device=device).scatter_(1, place, character)[:, :-1]
    flat = torch.where(slot < 0, tokens * CHARACTER_COUNT, unit // within * CHARACTER_COUNT + character)
    bag = _multi_hot(flat, tokens * CHARACTER_COUNT).view(batch, tokens, CHARACTER_COUNT)
    token = order[bigram.clamp(min=0) // BIGRAM_BUCKETS] // within
    pairs = torch.where(bigram < 0, tokens * BIGRAM_BUCKETS, token * BIGRAM_BUCKETS + bigram % BIGRAM_BUCKETS)
    return LocalTargets(slots, bag, _multi_hot(pairs, tokens * BIGRAM_BUCKETS).view(batch, tokens, BIGRAM_BUCKETS))


@cache
def _order(side: int, device: torch.device) -> Tensor:
    """(784,) ``token_order``, copied to the device once: a copy per batch would wait for it."""
    return torch.tensor(token_order(side), device=device)


def _multi_hot(index: Tensor, size: int) -> Tensor:
    out = torch.zeros(index.shape[0], size + 1, dtype=torch.bool, device=index.device)
    return out.scatter_(1, index, True)[:, :-1]


class Heads(nn.Module):
    """Linear read-outs that exist during training only."""

    def __init__(self, vision_width: int, text_width: int, units_per_state: int = 1, *, page: bool = False) -> None:
        super().__init__()
        self.slots = nn.Linear(vision_width, units_per_state * SLOTS * (CHARACTER_COUNT + 1))
        self.bigrams = nn.Linear(text_width, BIGRAM_BUCKETS)
        self.page = nn.Linear(vision_width, BIGRAM_BUCKETS) if page else None
        self.align_scale = nn.Parameter(torch.tensor(3.0))
        self.align_bias = nn.Parameter(torch.tensor(-6.0))
        self.rank_scale = nn.Parameter(torch.tensor(math.log(12.0)))
        with torch.no_grad():
            self.bigrams.bias.fill_(-6.0)
            self.slots.bias.view(units_per_state * SLOTS, -1)[:, -1].fill_(5.0)

    @torch.no_grad()
    def settle(self) -> None:
        """Scales as they fit a trained reader, whose checkpoint does not hold them; first guesses would unsettle it."""
        self.align_scale.fill_(5.2)
        self.align_bias.fill_(-6.8)
        self.rank_scale.fill_(4.05)


def overlap_shares(boxes: Tensor, side: int) -> Tensor:
    """(..., 4) pixel boxes -> (..., N) share of each box that falls into each visual token's cell; 0 for no box."""
    start = torch.arange(side, device=boxes.device) * (CANVAS / side)
    end = start + CANVAS / side
    across = (torch.minimum(end, boxes[..., 2:3]) - torch.maximum(start, boxes[..., 0:1])).clamp(min=0)
    down = (torch.minimum(end, boxes[..., 3:4]) - torch.maximum(start, boxes[..., 1:2])).clamp(min=0)
    area = (down[..., :, None] * across[..., None, :]).flatten(-2)
    return area / area.sum(-1, keepdim=True).clamp(min=1e-6)


def target_scores(tokens: Tensor, embedding: Tensor, targets: Tensor) -> Tensor:
    """Target's score of each visual token for each question: 0.85 minmax(mean of top-2 cosines) + 0.15 minmax(norm).

    tokens: (B, N, D); embedding: (V, D); targets: (B, Q, T) ids, -1 where there is none. Returns (B, Q, N).
    """
    cosines = F.normalize(tokens.float(), dim=-1) @ F.normalize(embedding.float(), dim=-1).T
    batch, questions, length = targets.shape
    count = tokens.shape[1]
    index = targets.clamp(min=0).view(batch, 1, -1).expand(-1, count, -1)
    found = cosines.gather(2, index).view(batch, count, questions, length)
    found = found.masked_fill((targets < 0)[:, None], -1.0)
    # Largest and second largest by two maxima: a top-k over a few columns of many rows is slow on a GPU.
    best, place = found.max(dim=-1, keepdim=True)
    second = found.scatter(-1, place, -1.0).amax(-1)
    relevance = ((best[..., 0] + second) / 2).transpose(1, 2)
    norm = tokens.float().norm(dim=-1)[:, None]
    return RELEVANCE_WEIGHT * _minmax(relevance) + (1 - RELEVANCE_WEIGHT) * _minmax(norm)


def _minmax(values: Tensor) -> Tensor:
    low, high = values.amin(-1, keepdim=True), values.amax(-1, keepdim=True)
    return (values - low) / (high - low).clamp(min=1e-6)


def local_losses(
    heads: Heads, seen: SeenTokens, embedding: Tensor, scores: Tensor, boxes: Tensor, what: LocalTargets
) -> dict[str, Tensor]:
    """Losses that look at the vision tower alone.

    slots: which character has its centre in each 4 x 8 px slot of a patch (cross-entropy, summed, per character);
    bigrams: hashed neighbour pairs of each visual token (binary, per pair);
    and those of ``finding_losses``.
    """
    batch, tokens = len(seen.states), seen.tokens
    logits = heads.slots(seen.states).float().view(batch, -1, CHARACTER_COUNT + 1)
    present = what.bag.sum().clamp(min=1)
    slots = F.cross_entropy(logits.flatten(0, 1), what.slots.flatten(), reduction="sum") / present
    pairs = heads.bigrams(tokens).float()
    bigrams = F.binary_cross_entropy_with_logits(pairs, what.bigrams.float(), reduction="sum")
    found = finding_losses(heads, seen, embedding, scores, boxes, what)
    return {"slots": slots, "bigrams": bigrams / what.bigrams.sum().clamp(min=1), **found}


def page_loss(heads: Heads, pooled: Tensor, what: LocalTargets) -> Tensor:
    """Which hashed pairs stand anywhere on the page, from the class token (B, Dv); binary, per pair.

    It gives the class token what it has in other towers, a reason to look at what matters.
    """
    assert heads.page is not None
    present = what.bigrams.any(1)
    loss = F.binary_cross_entropy_with_logits(heads.page(pooled).float(), present.float(), reduction="sum")
    return loss / present.sum().clamp(min=1)


def finding_losses(
    heads: Heads, seen: SeenTokens, embedding: Tensor, scores: Tensor, boxes: Tensor, what: LocalTargets
) -> dict[str, Tensor]:
    """Losses by which a word is found among visual tokens.

    align: characters of each visual token, predicted as exp(s) cos(token, input embedding of the character) + b;
    rank: Target's score (B, Q, N) as a distribution over cells, against the share of the named words' boxes
    (B, Q, 2, 4) in each cell;
    page: ``page_loss``, where the tower has a class token.
    """
    tokens = seen.tokens
    present = what.bag.sum().clamp(min=1)
    letters = embedding[vocabulary.FIRST_BYTE + 33 : vocabulary.FIRST_BYTE + 33 + CHARACTER_COUNT].float()
    cosines = F.normalize(tokens.float(), dim=-1) @ F.normalize(letters, dim=-1).T
    aligned = heads.align_scale.exp() * cosines + heads.align_bias
    align = F.binary_cross_entropy_with_logits(aligned, what.bag.float(), reduction="sum") / present
    shares = overlap_shares(boxes, math.isqrt(tokens.shape[1])).sum(2)
    shares = shares / shares.sum(-1, keepdim=True).clamp(min=1)
    likely = F.log_softmax(heads.rank_scale.exp() * scores, dim=-1)
    asked = shares.sum(-1) > 0
    rank = -(shares * likely).sum() / asked.sum().clamp(min=1)
    losses = {"align": align, "rank": rank}
    return losses if seen.page is None else losses | {"page": page_loss(heads, seen.page, what)}


def answer_losses(logits: Tensor, sample: dict[str, Tensor]) -> dict[str, Tensor]:
    """Mean cross-entropy of the answer token, of what follows it, and of the spelling of targets that are there.

    ``logits``: (B, L, V) at the packed question tokens. Also the accuracy of yes against no.
    """
    labels, kinds = sample["labels"], sample["kinds"]
    every = F.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
    answered = kinds == ANSWER
    says_yes = logits[..., vocabulary.YES] >= logits[..., vocabulary.NO]
    is_yes = labels == vocabulary.YES
    return {
        "answer": _mean(every, answered),
        "ending": _mean(every, kinds == ENDING),
        "spelling": _mean(every, kinds == SPELLING),
        "accuracy": _mean((says_yes == is_yes).float(), answered).detach(),
        "tpr": _mean(says_yes.float(), answered & is_yes).detach(),
        "fpr": _mean(says_yes.float(), answered & ~is_yes).detach(),
    }


def open_losses(logits: Tensor, sample: dict[str, Tensor], keep: Tensor) -> dict[str, Tensor]:
    """Mean cross-entropy of the letters of open answers and of their ends, and the share of answers without a mistake.

    Questions whose values are mostly among the dropped cells are left out: to train them would be to train guessing.
    ``silence`` is the cross-entropy of saying nothing, the end in place of the first letter, where no cell of the
    answer is left: without it the vision tower learns to write answers into the cells of other things.

    ``logits``: (B, L, V) at the packed question tokens; keep: (B, N) bool.
    """
    labels, letter = sample["labels"], sample["kinds"] == LETTER
    readable = can_be_read(sample["values"], keep)
    number = sample["segments"].clamp(max=readable.shape[1] - 1)
    scored = letter & readable.gather(1, number)
    first = letter & ~F.pad(letter, (1, -1))
    silent = first & cannot_be_seen(sample["values"], keep).gather(1, number)
    wanted = torch.where(silent, vocabulary.IM_END, labels)
    every = F.cross_entropy(logits.float().flatten(0, 1), wanted.flatten(), reduction="none").view_as(labels)
    wrong = (scored & (logits.argmax(-1) != labels)).float()
    mistakes = torch.zeros_like(readable, dtype=torch.float32).scatter_add(1, number, wrong)
    letters = torch.zeros_like(mistakes).scatter_add(1, number, scored.float())
    exact = _mean((mistakes == 0).float(), letters > 0).detach()
    return {"letters": _mean(every, scored), "silence": _mean(every, silent), "exact": exact}


def can_be_read(values: Tensor, keep: Tensor) -> Tensor:
    """(B, Q) bool: at least ``READABLE`` of every value (B, Q, 2, 4) lies in kept cells (B, N)."""
    shares = overlap_shares(values, math.isqrt(keep.shape[1]))
    absent = shares.sum(-1) == 0
    return (absent | ((shares * keep[:, None, None]).sum(-1) >= READABLE)).all(-1)


def cannot_be_seen(values: Tensor, keep: Tensor) -> Tensor:
    """(B, Q) bool: the question has values (B, Q, 2, 4), and none of the cells of the first, the answer, is kept."""
    shares = overlap_shares(values[:, :, 0], math.isqrt(keep.shape[1]))
    return (shares.sum(-1) > 0) & ((shares * keep[:, None]).sum(-1) == 0)


def _mean(values: Tensor, where: Tensor) -> Tensor:
    return (values * where).sum() / where.sum().clamp(min=1)


def draw_keep(batch: int, tokens: int, device: torch.device | str) -> tuple[Tensor, Tensor]:
    """Visual-token dropout: (B, N) bool, and (B,) int64 counts for images whose tokens Target chooses (0: not those).

    45 % of images keep all tokens; 40 % keep each token with a probability drawn from 0.2..1; 15 % keep what Target
    would choose for the image's first question, at a budget drawn from 0.2..0.6.
    """
    draw = torch.rand(batch, 1, device=device)
    share = torch.where(draw < 0.45, 1.0, 0.2 + 0.8 * torch.rand(batch, 1, device=device))
    keep = torch.rand(batch, tokens, device=device) < share
    budget = (tokens * (0.2 + 0.4 * torch.rand(batch, device=device))).long()
    return keep | (draw < 0.45), torch.where(draw[:, 0] > 0.85, budget, 0)


def apply_target_choice(keep: Tensor, counts: Tensor, scores: Tensor) -> Tensor:
    """Replaces the rows of ``keep`` (B, N) that have a count by the tokens of highest score (B, N)."""
    order = scores.sort(dim=1, descending=True).values
    threshold = order.gather(1, (counts[:, None] - 1).clamp(min=0))
    return torch.where(counts[:, None] > 0, scores >= threshold, keep)
