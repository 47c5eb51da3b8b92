"""Which pixel values each token depends on, by a handful of backward passes for all tokens together.

One pass gives the gradient of sum_i r.t_i, r a random direction, another that of sum_i 2^(d_i) r.t_i, where d_i is a
digit of token i's number. Powers of two are exact in floating point: at a pixel value that feeds token i alone the
second is 2^(d_i) times the first, to the bit. As many passes as numbers have digits tell which token it feeds.

Any other ratio means that several tokens share the pixel value (shrunken feature maps, overlapping convolutions).
Tokens are then dealt into smaller hands, every 7th together, then every 21st and so on, until no two of a hand meet.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sightline.errors import SightlineError

Indices = NDArray[np.int64]

DEALT = (7, 3, 2, 5)
"""Into how many smaller hands one is dealt that has tokens which share pixel values, then each of these; then 2."""
MOST_SHARED = 64
"""A pixel value that feeds more tokens than this says nothing about where they come from."""
TRIED = 5
"""Tokens whose pixel values are counted one by one to know beforehand how many tokens share one."""
SAME = 1e-3
"""How far from a power of two a ratio may be: noise of a device that adds up in another order each time."""


def supports(features: Tensor, pixels: Tensor, values: Indices) -> tuple[Indices, Indices]:
    """Pairs (token, pixel value) of all dependencies, each once, sorted by token.

    ``features`` are (M, D), computed from the leaf ``pixels``. Values are looked at and counted as in ``values`` (P,),
    which names them by their place in the flattened leaf.
    """
    nothing = np.zeros(0, dtype=np.int64)
    if not features.requires_grad:
        return nothing, nothing
    generator = torch.Generator().manual_seed(0)
    direction = torch.randn(features.shape[-1], generator=generator).to(features.device)
    projected = features.float() @ direction
    # Half precision has few exponents: 2^31 would overflow where 2^3 does not.
    base = 4 if torch.float16 in (features.dtype, pixels.dtype) else 32
    looked_at = torch.from_numpy(values).to(pixels.device)

    def gradient(weights: Tensor) -> Tensor:
        """(P,) of the tokens' projections, each times its weight."""
        (slopes,) = torch.autograd.grad(projected, pixels, weights, retain_graph=True, allow_unused=True)
        return (
            torch.zeros(len(looked_at), device=pixels.device) if slopes is None else slopes.flatten()[looked_at].float()
        )

    tokens = torch.arange(len(features), device=features.device)
    hands, pairs, depth = [tokens], [], 0
    while hands:
        shared = []
        for hand in hands:
            found = _owners(hand, gradient, len(features), base)
            if found is None:
                shared.append(hand)
            else:
                pairs.append(found)
        if depth == 0 and shared:
            _refuse_mixed(gradient, tokens)
        ways = DEALT[depth] if depth < len(DEALT) else 2
        hands = [hand[first::ways] for hand in shared for first in range(min(ways, len(hand)))]
        depth += 1
    token, value = (torch.cat(part).cpu().numpy() for part in zip(*pairs, strict=True))
    order = np.argsort(token, kind="stable")
    return token[order], value[order]


def _owners(hand: Tensor, gradient: Callable[[Tensor], Tensor], count: int, base: int) -> tuple[Tensor, Tensor] | None:
    """(token, pixel value) of every value that feeds a token of the hand; None if two tokens of it share one."""
    number = torch.arange(len(hand), device=hand.device)

    def weighted(weights: Tensor) -> Tensor:
        spread = torch.zeros(count, device=hand.device)
        spread[hand] = weights
        return gradient(spread)

    plain = weighted(torch.ones(len(hand), device=hand.device))
    owner, place = torch.zeros(len(plain), dtype=torch.long, device=plain.device), 1
    while place < len(hand):
        scaled = weighted(torch.exp2((number // place % base).float()))
        ratio = scaled / plain
        digit = torch.log2(ratio).round()
        fits = (ratio * torch.exp2(-digit) - 1).abs() < SAME  # false for NaN
        if not (fits | ((plain == 0) & (scaled == 0))).all():
            return None
        owner += torch.where(fits, digit, 0.0).long() * place
        place *= base
    value = plain.nonzero()[:, 0]
    return hand[owner[value].to(hand.device)].to(value.device), value


def _refuse_mixed(gradient: Callable[[Tensor], Tensor], tokens: Tensor) -> None:
    """Tokens that share pixel values: whether so few share one that they can be told apart at all."""
    count = len(tokens)
    tried = torch.linspace(0, count - 1, min(TRIED, count)).long().to(tokens.device)
    fed = sorted(int(gradient((tokens == token).float()).count_nonzero()) for token in tried)
    everything = int(gradient(torch.ones(count, device=tokens.device)).count_nonzero())
    shared = fed[len(fed) // 2] * count / everything
    if shared > MOST_SHARED:
        raise SightlineError(
            f"image tokens mix outside of attention: a pixel feeds about {shared:.0f} of {count} tokens, so they "
            "come from no place of their own and have no cells"
        )
