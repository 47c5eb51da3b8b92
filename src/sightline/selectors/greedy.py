"""Greedy loops shared by the diversity selectors, batched over images: (B, N, N) similarities -> (B, K) picks.

On CUDA a loop is one kernel launch where Triton is installed; elsewhere off the CPU it makes K steps of tensor
operations without reading a value back to the host. The argmax of each step gives ties to the lower index, and a picked
token is never picked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from sightline.errors import SightlineError
from sightline.selectors.scores import NORM_FLOOR, kernels_run, power_of_two

TAKEN = float("-inf")
DEPENDENT = 1e-8
"""A squared residual below this fraction of its start is rounding noise of float32 products: it spans nothing new."""
STRIPS = 6
"""Horizontal strips that a symmetric product is computed in."""
REFRESHED = 16
"""Out-of-date gains that the lazy coverage loop renews at once; changes its speed, never its picks."""


def stack(parts: Sequence[Tensor]) -> Tensor:
    """(B, ...) from B tensors of one shape; the images of one batch must have equally many visual tokens."""
    shapes = sorted({tuple(part.shape) for part in parts})
    if len(shapes) != 1:
        raise SightlineError(f"cannot batch views of different shapes {shapes}; group views by their token count")
    return torch.stack(list(parts))


def at_least_float32(x: Tensor) -> Tensor:
    return x if x.dtype == torch.float64 else x.float()


def unit(features: Tensor) -> Tensor:
    """Rows (..., D) scaled to length 1 in float32 or better; rows shorter than the norm floor become 0, never NaN."""
    return torch.nn.functional.normalize(at_least_float32(features), dim=-1, eps=NORM_FLOOR)


def gram(features: Tensor) -> Tensor:
    """Inner products (B, N, D) -> (B, N, N), symmetric to the last bit.

    Image by image, because a batched product may round differently for another B. On a CPU in strips of the upper
    triangle, which costs little more than half of the whole product.
    """
    images, n, _ = features.shape
    products = features.new_empty(images, n, n)
    strip = -(-n // STRIPS) if features.device.type == "cpu" else n
    for image, product in zip(features, products, strict=True):
        for start in range(0, n, strip):
            behind = start + strip
            torch.mm(image[start:behind], image[start:].T, out=product[start:behind, start:])
            square = product[start:behind, start:behind]
            square.copy_(square.triu() + square.triu(1).T)
            product[behind:, start:behind] = product[start:behind, behind:].T
    return products


def cosine(left: Tensor, right: Tensor) -> Tensor:
    """(..., N, D), (..., M, D) -> (..., N, M) in float32 or better; 0 with vectors shorter than the norm floor.

    Divides the products, not the vectors, by the lengths: products of small integers are exact, so real ties stay.
    """
    left, right = at_least_float32(left), at_least_float32(right)
    rows, columns = (side.norm(dim=-1).clamp_min(NORM_FLOOR) for side in (left, right))
    return (left @ right.mT).div_(rows.unsqueeze(-1)).div_(columns.unsqueeze(-2))


def text_dissimilarity(patches: Tensor, texts: Tensor) -> Tensor:
    """Mean over texts of minus the cosine: patches (..., N, P), texts (..., T, P) -> (..., N).

    The sign is the published one: in CLIP's joint space the patches least like the text carry what it asks for.
    """
    return -cosine(patches, texts).mean(dim=-1)


def cosines(features: Tensor) -> Tensor:
    """(B, N, D) -> (B, N, N), each token with each other one of its image; see ``cosine`` and ``gram``."""
    products = gram(at_least_float32(features))
    lengths = products.diagonal(dim1=1, dim2=2).sqrt().clamp_min(NORM_FLOOR)
    return products.div_(lengths.unsqueeze(1) * lengths.unsqueeze(2))


def residual_greedy(
    products: Tensor,
    start: Tensor,
    bias: Tensor,
    k: int,
    first: Tensor | None = None,
    scale: float = 1.0,
    rooted: bool = False,
) -> Tensor:
    """Picks by what the picks so far do not span yet: a pivoted Cholesky factorisation, (B, k) in pick order.

    products (B, N, N) are inner products of the tokens, start (B, N) their squared residuals r before any pick,
    bias (B, N) a score that does not change, first (B,) an optional forced pick. With pick j at step t:

        e_i = (G_ij - sum_{s<t} e_is e_js) / sqrt(r_j),    r_i <- r_i - e_i^2,    next pick = argmax gain(r) + bias,

    where gain is scale * r, or scale * sqrt(max(0, r)) if ``rooted``.

    This is Gram-Schmidt expressed in inner products: O(tN) instead of O(ND) a step. It runs in float64, where the order
    of summation cannot change a pick. A pick whose own residual is rounding noise changes nobody's residual.
    """
    images, n, _ = products.shape
    residual = start.double().clone()
    noise = residual.clamp_min(0.0) * DEPENDENT
    handicap = bias.double().clone()
    if kernels_run(products, n):
        return launch_residual(products, residual, noise, handicap, scale, rooted, first, k)
    rows = products.reshape(images * n, n)
    first_row = torch.arange(images, device=rows.device) * n
    factor = residual.new_zeros(images, k, n)
    picks = torch.empty(images, k, dtype=torch.int64, device=rows.device)
    for step in range(k):
        if step == 0 and first is not None:
            pick = first.unsqueeze(1)
        else:
            length = residual.clamp(min=0.0).sqrt_() if rooted else residual
            pick = (length * scale + handicap).argmax(dim=1, keepdim=True)
        picks[:, step : step + 1] = pick
        handicap.scatter_(1, pick, TAKEN)
        row = rows.index_select(0, pick.squeeze(1) + first_row).double()
        past = factor[:, :step]
        own = past.gather(2, pick.unsqueeze(2).expand(images, step, 1))
        share = torch.baddbmm(row.unsqueeze(1), own.mT, past, alpha=-1.0).squeeze(1)
        pivot = residual.gather(1, pick)
        share /= torch.where(pivot > noise.gather(1, pick), pivot, torch.inf).sqrt()
        factor[:, step] = share
        residual.addcmul_(share, share, value=-1.0)
    return picks


def farthest_greedy(
    similarity: Tensor, weight: Tensor, seeds: Tensor, seed_count: Tensor, ceiling: float, k: int
) -> Tensor:
    """Picks argmax_i w_i * min(ceiling, min_{j picked} (1 - cos_ij)) after forced seeds, (B, k) in pick order.

    similarity (B, N, N) cosines, weight (B, N) >= 0, seeds (B, S) of which image b forces the first seed_count[b].
    Distances are not negative: rounding must not order duplicates of a picked token.
    """
    images, n, _ = similarity.shape
    weight = weight.to(similarity.dtype)
    if kernels_run(similarity, n) and ceiling in (1.0, 2.0):
        return launch_farthest(similarity, weight, seeds, seed_count, ceiling, k)
    rows = similarity.reshape(images * n, n)
    first_row = torch.arange(images, device=rows.device) * n
    nearest = torch.full_like(weight, ceiling)
    taken = torch.zeros_like(weight)
    value = torch.empty_like(weight)
    picks = torch.empty(images, k, dtype=torch.int64, device=rows.device)
    for step in range(k):
        pick = torch.addcmul(taken, nearest, weight, out=value).argmax(dim=1)
        if step < seeds.shape[1]:
            pick = torch.where(seed_count > step, seeds[:, step], pick)
        picks[:, step] = pick
        taken.scatter_(1, pick.unsqueeze(1), TAKEN)
        distance = (1.0 - rows.index_select(0, pick + first_row)).clamp_(min=0.0)
        torch.minimum(nearest, distance, out=nearest)
    return picks


def cover_greedy(covers: Tensor, weight: Tensor, bias: Tensor, k: int) -> Tensor:
    """Greedy maximum coverage: covers (B, N, I), how much token j covers item i -> (B, k) in pick order.

    From coverage c = 0:  gain_j = sum_i max(0, covers_ji - c_i),  pick = argmax_j weight_j * gain_j + bias_j,
    c_i <- max(c_i, covers_pick,i).  weight (B, N) >= 0; a bias (B, N) of -inf excludes a token.
    """
    weight, bias = weight.to(covers.dtype), bias.to(covers.dtype)
    if covers.device.type == "cpu":
        return torch.stack([cover_lazily(*image, k) for image in zip(covers, weight, bias, strict=True)])
    if kernels_run(covers, covers.shape[1]):
        return launch_cover(covers, weight.double(), bias.double(), k)
    return cover_fully(covers, weight, bias, k)


def cover_fully(covers: Tensor, weight: Tensor, bias: Tensor, k: int) -> Tensor:
    """Every gain anew at every step, (B, N, I) -> (B, k): no branch depends on data, as a captured graph requires."""
    images, n, items = covers.shape
    rows = covers.reshape(images * n, items)
    first_row = torch.arange(images, device=rows.device) * n
    covered = covers.new_zeros(images, items)
    excess = torch.empty_like(covers)
    # Summed in float64, where the order of summation (which depends on the batch) cannot change a pick.
    weight, handicap = weight.double(), bias.to(torch.float64, copy=True)
    picks = torch.empty(images, k, dtype=torch.int64, device=rows.device)
    for step in range(k):
        gain = torch.sub(covers, covered.unsqueeze(1), out=excess).clamp_(min=0.0).sum(dim=2, dtype=torch.float64)
        pick = torch.addcmul(handicap, gain, weight).argmax(dim=1)
        picks[:, step] = pick
        handicap.scatter_(1, pick.unsqueeze(1), TAKEN)
        torch.maximum(covered, rows.index_select(0, pick + first_row), out=covered)
    return picks


def cover_lazily(covers: Tensor, weight: Tensor, bias: Tensor, k: int) -> Tensor:
    """The same picks for one image, (N, I) -> (k,), with most gains left out of date.

    Coverage only grows, so an old gain bounds the present one from above (in floating point too: subtraction, clamping
    and a sum in fixed order are monotone). A token that leads with a current gain therefore leads outright; one that
    ties with it from a lower index would be the argmax itself and is brought up to date before anything is accepted.
    Gains are summed in the precision of the weight.
    """
    covered = covers.new_zeros(covers.shape[1])
    gain = covers.clamp(min=0.0).sum(dim=1, dtype=weight.dtype)
    handicap = bias.clone()
    value = torch.addcmul(handicap, gain, weight)
    width = min(REFRESHED, len(covers))
    picks: list[int] = []
    fresh = set(range(len(covers)))
    while len(picks) < k:
        # A gain of 0 cannot fall any further, so it is current however old it is.
        while (best := int(value.argmax())) not in fresh and float(gain[best]) > 0.0:
            stale = value.topk(width).indices
            stale[-1] = best  # topk may leave out the lowest of many equal values, the one that wins the tie
            now = (covers.index_select(0, stale) - covered).clamp_(min=0.0).sum(dim=1, dtype=weight.dtype)
            gain[stale] = now
            value[stale] = torch.addcmul(handicap[stale], now, weight[stale])
            fresh.update(stale.tolist())
        picks.append(best)
        handicap[best] = value[best] = TAKEN
        torch.maximum(covered, covers[best], out=covered)
        fresh = set()
    return torch.tensor(picks, device=covers.device)


# The same loops as one launch of a kernel each, for all images of a batch.

SMALLEST_COVER, SMALLEST_RESIDUAL = 8, 16
"""Tokens per program when an image has the GPU to itself: enough programs to hide latency, few enough to meet fast."""
TILE, LARGE_TILE = 2048, 8192
"""Numbers that a program holds of a matrix at once; many where it has to read much at every step."""


def spread(n: int, images: int, smallest: int, processors: int) -> tuple[int, int]:
    """(programs per image, tokens per program, a power of two) such that all programs of a batch run at once.

    Programs of one image wait for each other at every step, so none may be left waiting for a free multiprocessor.
    """
    programs = max(1, min(-(-n // smallest), processors // images))
    block = max(smallest, power_of_two(-(-n // programs)))
    return -(-n // block), block


@cache
def _processors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count) if device.type == "cuda" else 1


def _together(programs: int) -> dict[str, Any]:
    """Programs that wait for one another must all be running: the driver refuses a launch that cannot promise it."""
    return {"launch_cooperative_grid": True} if programs > 1 else {}


def launch_farthest(
    similarity: Tensor, weight: Tensor, seeds: Tensor, seed_count: Tensor, ceiling: float, k: int
) -> Tensor:
    """See ``farthest_greedy``. ``ceiling`` is 1 or 2."""
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


def launch_residual(
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
    """See ``residual_greedy``; start, noise and bias (B, N) are float64."""
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
        programs,
        rooted=rooted,
        forced=first is not None,
        several=programs > 1,
        block=block,
        width=power_of_two(n),
        chunk=max(1, TILE // block),
        num_warps=4,
        **_together(programs),
    )
    return picks


def launch_cover(covers: Tensor, weight: Tensor, bias: Tensor, k: int, smallest: int = SMALLEST_COVER) -> Tensor:
    """See ``cover_greedy``; weight and bias (B, N) are float64."""
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
        programs,
        several=programs > 1,
        block=block,
        width=power_of_two(n),
        chunk=max(16, min(tile // block, power_of_two(items))),
        num_warps=4 if tile == TILE else 8,
        **_together(programs),
    )
    return picks
