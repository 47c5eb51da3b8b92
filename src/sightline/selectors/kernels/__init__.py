"""Triton kernels for the loops that a GPU would otherwise spend launching: one launch per selection.

Every kernel makes the picks of the tensor code it stands in for, and that code runs wherever ``usable`` says no: on a
CPU, without Triton, or for more tokens than fit a program's registers.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

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
