"""Values to the device and back in the order of its queue, so that the host never waits for work it has handed over."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

PAGEABLE_BYTES = 32 * 1024
"""The driver takes copies up to about this size from ordinary memory at once; larger ones would wait for the queue."""


def on_device(values: Sequence[int] | Tensor, device: torch.device) -> Tensor:
    """Whole numbers or a tensor on the device. A copy from the host is queued behind earlier work, not waited for."""
    tensor = values if isinstance(values, Tensor) else torch.tensor(values, dtype=torch.long)
    if device.type != "cuda" or tensor.is_cuda:
        return tensor.to(device)
    if tensor.nbytes > PAGEABLE_BYTES:
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


class Arriving:
    """A tensor on its way to the host: copied right behind the work that makes it, read whenever it is needed.

    Reading waits for this copy alone, not for work that was queued after it.
    """

    def __init__(self, tensor: Tensor) -> None:
        self._host, self._copied = tensor, None
        if tensor.is_cuda:
            cuda: Any = torch.cuda
            self._host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            self._host.copy_(tensor, non_blocking=True)
            self._copied = cuda.Event()
            self._copied.record(torch.cuda.current_stream(tensor.device))

    def read(self) -> Tensor:
        """The tensor on the host."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._host
