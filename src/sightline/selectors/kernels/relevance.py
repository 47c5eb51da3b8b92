"""Launches the kernel that compares every token with the query in one pass over the tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from sightline.selectors.kernels import power_of_two

MOST_WORDS = 128
FEW_WORDS = 8
"""Up to this many a matrix product, which wants sixteen tokens a program, would leave most of the GPU idle."""


def fits(query: Tensor, top: int) -> bool:
    """Whether the kernel covers this case: no more words than fit a program, and the best one or two of them."""
    return query.dim() == 2 and 1 <= query.shape[0] <= MOST_WORDS and top in (1, 2)


def alignment(tokens: Tensor, query: Tensor, top: int, floor: float) -> Tensor:
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
