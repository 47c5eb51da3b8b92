"""What out of memory looks like on each device, and what to do before trying again with less."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from sightline.errors import SightlineError

Result = TypeVar("Result")


HOST_WORDS = ("not enough memory", "can't allocate memory")
"""What PyTorch's CPU allocator says, in a plain RuntimeError."""


FEWER = ", or fewer images at a time (--shard-images)"
"""What helps where the tokens of all pictures of a shard lie in memory beside the work."""


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        return True
    return any(words in str(error) for words in HOST_WORDS)


def in_words(error: BaseException) -> str | None:
    """One line about memory that ran out where no smaller batch could be tried; None for any other error."""
    if not is_out_of_memory(error):
        return None
    said = ". ".join(str(error).splitlines()[0].split(". ")[:2]) if str(error) else "out of memory"
    return f"{said.rstrip('.')}; use a smaller model, dtype, image size or batch"


def free_memory() -> None:
    """Gives back what nobody holds; within an ``except`` the error's traceback still holds what failed."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def in_halves(
    groups: Sequence[list[int]], work: Callable[[list[int]], Result], hopeless: Callable[[int], str]
) -> list[tuple[list[int], Result]]:
    """``work`` over every group, in order; a group for which memory runs out is halved, down to single items.

    ``hopeless`` says what to tell the user when memory does not even suffice for that one item.
    """
    pending, done = list(groups), []
    while pending:
        group = pending.pop(0)
        try:
            done.append((group, work(group)))
            continue
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            if len(group) == 1:
                raise SightlineError(f"out of memory on {hopeless(group[0])}") from error
        free_memory()
        half = len(group) // 2
        pending[:0] = [group[:half], group[half:]]
    return done
