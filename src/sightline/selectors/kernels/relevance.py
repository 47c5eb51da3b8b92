"""Launches the kernel that compares every token with the query in one pass over the tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.selectors.kernels import power_of_two
from sightline.selectors.scores import NORM_FLOOR

MOST_WORDS = 128
TOKENS, CHANNELS = 16, 64
"""Tokens per program and channels per step: the smallest tile of a matrix product, so that many programs share N."""


def fits(query: Tensor, top: int) -> bool:
    """Whether the kernel covers this case: no more words than fit a program, and the best one or two of them."""
    return query.dim() == 2 and 1 <= query.shape[0] <= MOST_WORDS and top in (1, 2)


def alignment(tokens: Tensor, query: Tensor, top: int) -> tuple[Tensor, Tensor]:
    """(N,) mean of the ``top`` largest cosines of each token with the query rows, and (N,) token lengths, float32.

    tokens (N, D), query (T, D) on one device. Both results share one allocation, to travel to the host together.
    """
    from sightline.selectors.kernels import programs as kernel

    n, depth = tokens.shape
    both = torch.empty(2, n, dtype=torch.float32, device=tokens.device)
    kernel.alignment[(-(-n // TOKENS),)](
        tokens.contiguous(),
        query.contiguous(),
        both[0],
        both[1],
        n,
        query.shape[0],
        depth,
        NORM_FLOOR,
        pair=min(top, query.shape[0]),
        block=TOKENS,
        words=max(16, power_of_two(query.shape[0])),
        chunk=CHANNELS,
        num_warps=4,
    )
    host = both.cpu()
    return host[0], host[1]
