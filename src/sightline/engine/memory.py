"""What out of memory looks like on each device, and what to do before trying again with less."""

from __future__ import annotations

import torch


def is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, torch.cuda.OutOfMemoryError | MemoryError) or "not enough memory" in str(error)


def free_memory() -> None:
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
