"""A CPU with as much memory as a test says: allocations beyond it fail as a GPU's do."""

import weakref
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

SMALL = 16 * 1024
"""Bytes"""


class Scarce(TorchDispatchMode):
    """Counts the memory of everything computed while open, until it is let go, and refuses more than ``limit`` bytes.

    Counting ends where nothing refers to a tensor any more, so a traceback or a closure that holds one is seen.
    """

    def __init__(self, limit: float = float("inf")) -> None:
        super().__init__()
        self.limit = limit
        self.live = self.peak = self.refused = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        new = [self._count(leaf.untyped_storage()) for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
        if any(new) and self.live > self.limit:
            self.refused += 1
            raise torch.cuda.OutOfMemoryError(f"CUDA out of memory: {self.live} of {self.limit} bytes")
        return result

    def _count(self, storage: Any) -> bool:
        """Whether the memory is newly used; indices and losses, which the host of a GPU reads, are not counted."""
        key, size = storage.data_ptr(), storage.nbytes()
        if size < SMALL or key in self._known:
            return False
        self._known.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._forget, key, size)
        return True

    def _forget(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.live -= size
