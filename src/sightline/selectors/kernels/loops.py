"""Launches the greedy kernels: the arguments and picks of the loops in ``sightline.selectors.greedy``."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

from sightline.selectors.kernels import power_of_two, spread

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
