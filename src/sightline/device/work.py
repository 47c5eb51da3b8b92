"""Work handed to the device and back: copies in the order of its queue, clocks, one piece of work ahead; what out of
memory looks like, and what to do before trying again with less.
"""

from __future__ import annotations

import gc
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import torch
from torch import Tensor

from sightline.device import moved
from sightline.errors import SightlineError

# What out of memory looks like on each device, and what to do before trying again with less.

Outcome = TypeVar("Outcome")


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
    work: Callable[[list[int]], Outcome],
    too_large: Callable[[int], str],
    size: Callable[[list[int]], float] = len,
    limit: Limit | None = None,
) -> list[tuple[list[int], Outcome]]:
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


# Work handed to the device and back: copies in the order of its queue, clocks, one piece of work ahead.

# Values to the device and back in the order of its queue, so that the host never waits for work it has handed over.

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


# Elapsed time on the device that does the work, read without making the host wait for it. Set-up is not counted.


class _SetUp(threading.local):
    ms = 0.0
    under_way = False


_set_up = _SetUp()
"""What this thread has spent on set-up so far."""


@contextmanager
def setting_up(device: torch.device, bill: list[float]) -> Iterator[None]:
    """Bills the time inside (compiling, capturing, first runs) and keeps it out of every stopwatch that is running.

    The device is idle when set-up begins and when it ends: a stopwatch that spans it has seen all of it pass. Set-up
    within set-up is billed once, to the outer one.
    """
    if _set_up.under_way:
        yield
        return
    _finish(device)
    started, _set_up.under_way = time.perf_counter(), True
    try:
        yield
        _finish(device)
    finally:
        elapsed = (time.perf_counter() - started) * 1e3
        _set_up.ms += elapsed
        _set_up.under_way = False
        bill.append(elapsed)


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Stopwatch:
    """Started when made, stopped once. On a GPU two events in the current stream; elsewhere the host's clock.

    ``shared_by`` says how many results the measured work made together: each is billed an equal part.
    """

    def __init__(self, device: torch.device, shared_by: int = 1) -> None:
        self._shared_by = shared_by
        self._set_up = _set_up.ms
        self._stream: Any = torch.cuda.current_stream(device) if device.type == "cuda" else None
        if self._stream is not None:
            cuda: Any = torch.cuda
            self._first, self._last = (cuda.Event(enable_timing=True) for _ in range(2))
            self._first.record(self._stream)
        else:
            self._started = time.perf_counter()

    def stop(self) -> None:
        if self._stream is not None:
            self._last.record(self._stream)
        else:
            self._ended = time.perf_counter()
        self._set_up = _set_up.ms - self._set_up

    @property
    def ms(self) -> float:
        """Milliseconds between start and stop without set-up, per result; waits for the device."""
        if self._stream is not None:
            self._last.synchronize()
            elapsed = float(self._first.elapsed_time(self._last))
        else:
            elapsed = (self._ended - self._started) * 1e3
        return max(elapsed - self._set_up, 0.0) / self._shared_by


# One piece of work ahead: the next arm is queued before the last one is read, the next shard prepared meanwhile.

Label = TypeVar("Label")
Item = TypeVar("Item")
Result = TypeVar("Result")


def prepared_ahead(items: Iterable[Item], work: Callable[[Item], Result]) -> Iterator[tuple[Item, Future[Result]]]:
    """Every item with what ``work`` makes of it in a thread of its own, which is always one item ahead."""
    pool = ThreadPoolExecutor(max_workers=1)
    current: tuple[Item, Future[Result]] | None = None
    try:
        for item in items:
            upcoming = item, pool.submit(work, item)
            if current is not None:
                yield current
            current = upcoming
        if current is not None:
            yield current
    finally:
        # Not waited for: where a caller failed, the garbage collector may come here while some thread is being started,
        # and that thread could not be waited for without waiting for itself.
        pool.shutdown(wait=False, cancel_futures=True)


def one_ahead(work: Iterable[tuple[Label, Callable[[], Callable[[], Result]]]]) -> Iterator[tuple[Label, Result]]:
    """Results in the order of ``work``, whose items are a label and what launches it; launching returns what reads it.

    A launch that fails costs nothing that was launched before: the pending result is handed out first. If memory had
    run out, it is then tried once more, with nothing else pending.
    """
    pending: tuple[Label, Callable[[], Result]] | None = None
    for label, launch in work:
        launched = _attempt(launch)
        again = pending is not None and isinstance(launched, Exception) and memory_ran_out(launched)
        if again:
            del launched  # and with it the tensors that its traceback holds
        if pending is not None:
            yield pending[0], pending[1]()
            pending = None
        if again:
            free_memory()
            launched = _attempt(launch)
        if isinstance(launched, Exception):
            raise launched
        pending = label, launched
    if pending is not None:
        yield pending[0], pending[1]()


def _attempt(launch: Callable[[], Callable[[], Result]]) -> Callable[[], Result] | Exception:
    try:
        return launch()
    except Exception as error:
        return error
