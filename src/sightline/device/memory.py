"""What out of memory looks like on each device, and what to do before trying again with less."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import torch

from sightline.device import moved
from sightline.errors import SightlineError

Result = TypeVar("Result")


HOST_WORDS = ("not enough memory", "can't allocate memory")
"""What PyTorch's CPU allocator says, in a plain RuntimeError."""


FEWER = ", or fewer images at a time (--shard-images)"
"""What helps where the tokens of all images of a shard lie in memory beside the work."""


def is_out_of_memory(error: BaseException) -> bool:
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        return True
    return any(words in str(error) for words in HOST_WORDS)


def memory_ran_out(error: BaseException) -> bool:
    """Whether it is that, or the sentence about it."""
    return is_out_of_memory(error) or (error.__cause__ is not None and is_out_of_memory(error.__cause__))


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


@dataclass
class Limit:
    """The most work that memory may hold in one piece, lowered whenever a piece did not fit.

    Kept for as long as the model: an audit meets the limit once, not with every batch.
    """

    most: float = float("inf")


def halved(groups: Sequence[list[int]], done: Sequence[tuple[list[int], object]]) -> set[int]:
    """Items that ``in_halves`` did not do in the groups that were planned."""
    planned = {id(group) for group in groups}
    return {item for group, _ in done if id(group) not in planned for item in group}


def in_halves(
    groups: Sequence[list[int]],
    work: Callable[[list[int]], Result],
    too_large: Callable[[int], str],
    size: Callable[[list[int]], float] = len,
    limit: Limit | None = None,
) -> list[tuple[list[int], Result]]:
    """``work`` over every group, in order; a group for which memory runs out is halved, down to single items.

    ``too_large`` says what to tell the user when memory does not even suffice for that one item. A group whose ``size``
    is beyond the ``limit`` learnt so far is halved untried.
    """
    limit = limit or Limit()
    pending, done = list(groups), []
    while pending:
        group = pending.pop(0)
        halves = [group[: len(group) // 2], group[len(group) // 2 :]]
        if len(group) == 1 or size(group) <= limit.most:
            try:
                done.append((group, work(group)))
                moved()
                continue
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if len(group) == 1:
                    raise SightlineError(f"out of memory on {too_large(group[0])}") from error
            free_memory()
            limit.most = max(size(half) for half in halves)
        pending[:0] = halves
    return done


# How much memory a piece of work needed at its peak, beyond what was in use when it began.

STATUS, FORGET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class MemoryGrowth:
    """A context. On a GPU what PyTorch allocated; elsewhere what the process held in memory, where Linux tells."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self.grown: int | None = None
        """Bytes, known once the context has ended; None where nobody can tell."""

    def __enter__(self) -> MemoryGrowth:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before: int | None = torch.cuda.memory_allocated(self._device)
        else:
            self._before = _host("VmRSS") if _peak_forgotten() else None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        cuda = self._device.type == "cuda"
        peak = torch.cuda.max_memory_allocated(self._device) if cuda else _host("VmHWM")
        self.grown = None if self._before is None or peak is None else max(0, peak - self._before)


def _peak_forgotten() -> bool:
    """Tells the kernel to count the process's peak anew from here."""
    try:
        FORGET.write_text("5")
    except OSError:
        return False
    return True


def _host(field: str) -> int | None:
    try:
        found = re.search(rf"^{field}:\s*(\d+) kB$", STATUS.read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else int(found[1]) * 1024
