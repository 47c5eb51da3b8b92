"""HoloV: the budget is shared out over contiguous crops before any token is ranked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import ClassVar

import torch
from torch import Tensor

from sightline.core.selection import BatchSelector, Parity, Ranges, Selection, TokenView, build_form
from sightline.selectors import SELECTORS
from sightline.selectors.fastervlm import CLASS_ATTENTION, RECEIVED, token_attention
from sightline.selectors.greedy import stack
from sightline.selectors.scores import rank

ATTENTION_SCALE = 1000.0
EPSILON = 1e-6


def crop_scores(products: Tensor, attention: Tensor, alpha: float) -> Tensor:
    """products (..., n, n) inner products of a crop's n tokens, attention (..., n) -> (...,) crop scores.

    With cosines S inside the crop (zero diagonal), m_i = sum_j S_ij / (n-1) and v_i = sum_j (S_ij - m_i)^2 / (n-1):
    t_i = 1000 a_i + alpha * v_i * mean|1000 a| / (mean v + 1e-6);  score = mean t. A single token scores its attention.
    """
    n = attention.shape[-1]
    if n == 1:
        return attention.squeeze(-1)
    # Scaling the products instead of the tokens: n * n divisions a crop, not n * D.
    scale = 1.0 / (products.diagonal(dim1=-2, dim2=-1).clamp_min(0.0).sqrt() + EPSILON)
    cosines = products * scale.unsqueeze(-1) * scale.unsqueeze(-2)
    cosines.diagonal(dim1=-2, dim2=-1).zero_()
    mean = cosines.sum(dim=-1, keepdim=True) / (n - 1)
    variance = (cosines - mean).square().sum(dim=-1) / (n - 1)
    salience = ATTENTION_SCALE * attention
    context = variance * salience.abs().mean(dim=-1, keepdim=True) / (variance.mean(dim=-1, keepdim=True) + EPSILON)
    return (salience + alpha * context).mean(dim=-1)


def crop_sizes(n: int, crops: int) -> tuple[tuple[int, int], ...]:
    """((number of crops, tokens in each), ...), none empty: the first n mod ``crops`` are one token longer."""
    short, longer = divmod(n, crops)
    return tuple((count, size) for count, size in ((longer, short + 1), (crops - longer, short)) if count and size)


def holov_order(tokens: Tensor, attention: Tensor, k: int, crops: int, alpha: float) -> tuple[Tensor, Tensor]:
    """tokens (B, N, D), attention (B, N) -> (B, k) sources in output order, and (B,) how many of them fill no quota.

    quota = floor(k * score / (sum of scores + 1e-6)), one more for the highest-scoring crops until k are given out. A
    crop whose quota reaches its size stays whole, in raster order; others give their most attended tokens. What the
    quotas leave unfilled (the published code emits zero vectors there) are the most attended of the tokens not chosen,
    at the end.
    """
    tokens, attention = tokens.float(), attention.float()
    images, n = attention.shape
    runs = crop_sizes(n, crops)
    scores, places, first = [], [], 0
    for count, size in runs:
        inside = slice(first, first + count * size)
        first += count * size
        crop_tokens = [image[inside].view(count, size, -1) for image in tokens]
        # One image at a time: a batched product may round differently for another number of images.
        products = torch.stack([crop @ crop.mT for crop in crop_tokens])
        crop_attention = attention[:, inside].reshape(images, count, size)
        scores.append(crop_scores(products, crop_attention, alpha))
        places.append(rank(crop_attention).argsort(dim=2).flatten(1))
    score, place = torch.cat(scores, dim=1), torch.cat(places, dim=1)

    share = k * score / (score.sum(dim=1, keepdim=True) + EPSILON)
    quota = share.nan_to_num(0.0).clamp(0.0, n).floor().long()
    quota += rank(score).argsort(dim=1) < k - quota.sum(dim=1, keepdim=True)

    sizes = torch.tensor([size for count, size in runs for _ in range(count)])
    crop_of = torch.arange(len(sizes)).repeat_interleave(sizes)
    raster = torch.arange(n) - (sizes.cumsum(0) - sizes)[crop_of]
    sizes, crop_of, raster = (part.to(attention.device) for part in (sizes, crop_of, raster))
    whole = (quota >= sizes)[:, crop_of]
    chosen = place < quota[:, crop_of]
    emitted = crop_of * n + torch.where(whole, raster, place)
    fallback = n * n + rank(attention).argsort(dim=1)
    output = torch.where(chosen, emitted, fallback).argsort(dim=1)[:, :k]
    return output, (k - chosen.sum(dim=1)).clamp_min(0)


@SELECTORS.register("holov")
@dataclass(frozen=True)
class HoloV(BatchSelector):
    """Splits the budget over crops by attention and feature variety, then keeps each crop's most attended tokens.

    Reference: "Don't Just Chase 'Highlighted Tokens' in MLLMs: Revisiting Visual Holistic Context Retention" (2025).
    Needs: projected tokens; class-token attention of the penultimate vision layer, averaged over heads.
    Parity: official-algorithm. Indices are identical wherever the published code fills its quotas; where it pads with
    zero vectors (a quota larger than its crop) Sightline keeps the most attended of the tokens not chosen instead.
    Acts: deletes before the language model.
    Degenerate inputs: zero-norm tokens have cosine 0; all-zero attention gives one token to each of the first crops
    and fills up by index; ties go to the lower index.

    Parameters
    ----------
    crops: number of contiguous runs of tokens, the first N mod ``crops`` one token longer.
    alpha: weight of feature variety against attention.
    """

    crops: int = 16
    alpha: float = 0.09

    name: ClassVar[str] = "holov"
    parity: ClassVar[Parity] = "official-algorithm"
    ranges: ClassVar[Ranges] = {"crops": (1, inf)}
    needs: ClassVar[frozenset[str]] = frozenset({CLASS_ATTENTION})
    official_ms: ClassVar[float] = 20.0

    def other_form(self, blocks: int) -> HoloV:
        return build_form(ReceivedHoloV, self)

    def crops_of(self, n: int, k: int) -> int:
        return self.crops

    def select_many(self, views: Sequence[TokenView], k: int) -> list[Selection]:
        tokens, (attention,) = stack([view.tokens for view in views]), self.needs
        order, _ = holov_order(
            tokens, token_attention(views, attention), k, self.crops_of(tokens.shape[1], k), self.alpha
        )
        return [Selection(kept) for kept in order.sort(dim=1).values]


@dataclass(frozen=True)
class ReceivedHoloV(HoloV):
    """By the attention that tokens receive in the last block, over floor(16 N / 9 K) crops, at least one.

    The public code leaves that attention in the order of the tower's windows, tokens in that of the image; here both
    are in the image's.
    """

    crops: int = 0

    form: ClassVar[str] = (
        "the attention a token receives in the last block, crops by K, as the public code for Qwen2.5-VL"
    )
    ranges: ClassVar[Ranges] = {"crops": (0, inf)}
    needs: ClassVar[frozenset[str]] = frozenset({RECEIVED})

    def crops_of(self, n: int, k: int) -> int:
        return self.crops or max(1, int(1024 / 576 * n / k))
