"""Triton kernels for the loops that a GPU would otherwise spend launching: one launch per selection.

Every kernel makes the picks of the tensor code it stands in for, and that code runs wherever ``usable`` says no: on a
CPU, without Triton, or for more tokens than fit a program's registers.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

MOST_TOKENS = 8192
"""Each program looks at one number per token at once; beyond this they no longer fit its registers."""


@cache
def _triton_for_cuda() -> bool:
    return torch.version.cuda is not None and find_spec("triton") is not None


def usable(tensor: Tensor, n: int) -> bool:
    """Whether a kernel may run on this tensor's device for n tokens."""
    return tensor.is_cuda and n <= MOST_TOKENS and _triton_for_cuda()


def power_of_two(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(0, n - 1).bit_length()


def spread(n: int, images: int, smallest: int, processors: int) -> tuple[int, int]:
    """(programs per image, tokens per program, a power of two) such that all programs of a batch run at once.

    Programs of one image wait for each other at every step, so none may be left waiting for a free multiprocessor.
    """
    programs = max(1, min(-(-n // smallest), processors // images))
    block = max(smallest, power_of_two(-(-n // programs)))
    return -(-n // block), block


# What launches a kernel; the loops are those of ``sightline.selectors.greedy``.

SMALLEST_COVER, SMALLEST_RESIDUAL = 8, 16
"""Tokens per program when an image has the GPU to itself: enough programs to hide latency, few enough to meet fast."""
TILE, LARGE_TILE = 2048, 8192
"""Numbers that a program holds of a matrix at once; many where it has to read much at every step."""


@cache
def _processors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count) if device.type == "cuda" else 1


def _together(programs: int) -> dict[str, Any]:
    """Programs that wait for one another must all be running: the driver refuses a launch that cannot promise it."""
    return {"launch_cooperative_grid": True} if programs > 1 else {}


def farthest(similarity: Tensor, weight: Tensor, seeds: Tensor, seed_count: Tensor, ceiling: float, k: int) -> Tensor:
    """See ``greedy.farthest_greedy``. ``ceiling`` is 1 or 2."""
    from sightline.selectors.kernels import greedy_programs as kernel

    images, n, _ = similarity.shape
    picks = torch.empty(images, k, dtype=torch.int64, device=similarity.device)
    width = power_of_two(n)
    kernel.farthest[(images,)](
        similarity.contiguous(),
        weight.contiguous(),
        seeds.contiguous(),
        seed_count.contiguous(),
        picks,
        n,
        k,
        seeds.shape[1],
        twice=ceiling == 2.0,
        width=width,
        num_warps=4 if width <= 1024 else 8,
    )
    return picks


def residual(
    products: Tensor,
    start: Tensor,
    noise: Tensor,
    bias: Tensor,
    scale: float,
    rooted: bool,
    first: Tensor | None,
    k: int,
    smallest: int = SMALLEST_RESIDUAL,
) -> Tensor:
    """See ``greedy.residual_greedy``; start, noise and bias (B, N) are float64."""
    from sightline.selectors.kernels import greedy_programs as kernel

    images, n, _ = products.shape
    device = products.device
    programs, block = spread(n, images, smallest, _processors(device))
    picks = torch.empty(images, k, dtype=torch.int64, device=device)
    kernel.residual[(programs, images)](
        products.contiguous(),
        start.contiguous(),
        noise.contiguous(),
        bias.contiguous(),
        start.new_full((1,), scale),
        picks if first is None else first.contiguous(),
        picks,
        start.new_empty(images, k, n),
        start.new_empty(images, 2, n),
        start.new_empty(images, 2, n),
        torch.zeros(images, dtype=torch.int32, device=device),
        n,
        k,
        rooted=rooted,
        forced=first is not None,
        programs=programs,
        block=block,
        width=power_of_two(n),
        chunk=max(1, TILE // block),
        num_warps=4,
        **_together(programs),
    )
    return picks


def cover(covers: Tensor, weight: Tensor, bias: Tensor, k: int, smallest: int = SMALLEST_COVER) -> Tensor:
    """See ``greedy.cover_greedy``; weight and bias (B, N) are float64."""
    from sightline.selectors.kernels import greedy_programs as kernel

    images, n, items = covers.shape
    device = covers.device
    programs, block = spread(n, images, smallest, _processors(device))
    picks = torch.empty(images, k, dtype=torch.int64, device=device)
    tile = TILE if block == SMALLEST_COVER else LARGE_TILE
    kernel.cover[(programs, images)](
        covers.contiguous(),
        weight.contiguous(),
        bias.contiguous(),
        picks,
        covers.new_zeros(images, programs, items),
        weight.new_empty(images, 2, n),
        torch.zeros(images, dtype=torch.int32, device=device),
        n,
        items,
        k,
        programs=programs,
        block=block,
        width=power_of_two(n),
        chunk=max(16, min(tile // block, power_of_two(items))),
        num_warps=4 if tile == TILE else 8,
        **_together(programs),
    )
    return picks


# One pass over the tokens that compares every one of them with the query.

MOST_WORDS = 128
FEW_WORDS = 8
"""Up to this many a matrix product, which wants sixteen tokens a program, would leave most of the GPU idle."""


def alignment_fits(query: Tensor, top: int) -> bool:
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
