"""Convolutions whose stride is their size, as the matrix products that they are.

Patch embeddings are such convolutions. Kernels for convolutions can be slow for them, in half precision and three
dimensions by a factor of hundreds; kernels for products are not. Equal up to rounding. Only ``forward`` of single
modules is replaced, and put back when the context ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from torch import Tensor, nn
from torch.nn.functional import linear


@contextmanager
def by_products(model: nn.Module) -> Iterator[None]:
    """While open, convolutions of ``model`` that cut their input into patches run as matrix products."""
    cutting = [part for part in model.modules() if isinstance(part, nn.Conv2d | nn.Conv3d) and _cuts(part)]
    for convolution in cutting:
        convolution.forward = partial(patch_products, convolution)  # type: ignore[method-assign]
    try:
        yield
    finally:
        for convolution in cutting:
            del convolution.forward


def _cuts(convolution: nn.Conv2d | nn.Conv3d) -> bool:
    axes = len(convolution.kernel_size)
    return (
        convolution.kernel_size == convolution.stride
        and convolution.padding in ("valid", (0,) * axes)
        and convolution.dilation == (1,) * axes
        and convolution.groups == 1
        and "forward" not in vars(convolution)
    )


def patch_products(convolution: nn.Conv2d | nn.Conv3d, values: Tensor) -> Tensor:
    """(B, C, *sizes) -> (B, E, *patches), what does not fill a patch left out as the convolution does."""
    sizes = convolution.kernel_size
    batched = values if values.dim() == len(sizes) + 2 else values[None]
    counts = [side // size for side, size in zip(batched.shape[2:], sizes, strict=True)]
    for axis, (count, size) in enumerate(zip(counts, sizes, strict=True), start=2):
        batched = batched.narrow(axis, 0, count * size)
    split = batched.reshape(
        batched.shape[0], batched.shape[1], *(n for pair in zip(counts, sizes, strict=True) for n in pair)
    )
    axes = range(len(sizes))
    rows = split.permute(0, *(2 + 2 * axis for axis in axes), 1, *(3 + 2 * axis for axis in axes))
    made = linear(rows.flatten(1 + len(sizes)), convolution.weight.flatten(1), convolution.bias).movedim(-1, 1)
    return made if values.dim() == len(sizes) + 2 else made[0]
